// Ground truth for unwinding Windows x64 code. Real functions run in an emulator from a made-up call on. At every
// instruction of their prologues, at the body's edge and in their epilogues, the caller must come out exactly.
//
// A prologue needs no proof: it is run from the function's first byte. An epilogue is entered from the state that the
// prologue left. So it counts only if the machine itself then arrives at the caller with every preserved register
// right. Other epilogues (another frame state, code that is data) are counted as not provable.
#include <algorithm>
#include <string>

#include <Zydis/Zydis.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "formats/winx64/exec.h"
#include "support/known_unwind.h"
#include "support/pe_corpora.h"
#include "support/pe_emulator.h"

namespace windlass {
namespace {

using test::MachineState;
using test::PeEmulator;
using winx64::RuntimeFunction;
using winx64::UnwindInfo;

constexpr std::size_t kLimit = 4096;  // instructions a run
constexpr std::uint32_t kLongestFunction = 1U << 16;
constexpr unsigned kXmms = 16;

// What a call preserves. Go's own calling convention preserves the frame pointer and nothing else, whatever machine it
// runs on.
struct Convention {
  std::vector<unsigned> integer = {3, 5, 6, 7, 12, 13, 14, 15};
  unsigned first_xmm = 6;
};
const Convention kWindows, kGo{{5}, kXmms};

// Where unwinding is wrong for a reason that no unwinder can help, Windows' as little as this one. The files are pinned
// by their hashes, so the list is exact.
struct KnownWrong {
  const char* file;
  std::uint32_t begin;  // of the function
  const char* why;
};
constexpr const char* kEnteredMidway =
    "assembly entered in its middle with the caller's stack pointer in rax (OpenSSL)";
constexpr const char* kOtherStack = "the prologue goes over to another stack, so nothing holds before its end";
constexpr const char* kPushesBehindFrame =
    "pushes behind SET_FPREG, then rsp moves by a variable amount: the codes find "
    "them by rsp (handwritten in Wine)";
constexpr const char* kBuiltin = "V8's builtins share one information, and this one's code is not framed as it says";
constexpr KnownWrong kKnownWrong[] = {
    {"node-26", 0x253ac, kEnteredMidway},
    {"node-26", 0x25c6c, kEnteredMidway},
    {"node-26", 0xd4fb9, kEnteredMidway},
    {"node-26", 0xd5159, kEnteredMidway},
    {"node-26", 0xd528e, kEnteredMidway},
    {"node-26", 0xd53ee, kEnteredMidway},
    {"node-26", 0xe55ee, kEnteredMidway},
    {"node-20", 0x27cec, kEnteredMidway},
    {"node-20", 0x285ac, kEnteredMidway},
    {"node-20", 0x52e79, kEnteredMidway},
    {"node-20", 0x53019, kEnteredMidway},
    {"node-20", 0x5314e, kEnteredMidway},
    {"node-20", 0x532ae, kEnteredMidway},
    {"node-20", 0x655ee, kEnteredMidway},
    {"node-26", 0x2ac5ca0, kOtherStack},
    {"libvips-42.dll", 0x788668, kOtherStack},
    {"ntdll.dll", 0x55470, kOtherStack},
    {"ntdll.dll", 0x55494, kOtherStack},
    {"oleaut32.dll", 0x176e0, kPushesBehindFrame},
    {"rpcrt4.dll", 0x1ee00, kPushesBehindFrame},
    {"vcomp.dll", 0x1e80, kPushesBehindFrame},
    {"vcomp100.dll", 0x1e80, kPushesBehindFrame},
    {"vcomp110.dll", 0x1e80, kPushesBehindFrame},
    {"vcomp120.dll", 0x1e80, kPushesBehindFrame},
    {"vcomp140.dll", 0x1e80, kPushesBehindFrame},
    {"glu32.dll", 0x1d170,
     "GCC: SAVE_XMM128 displacements count from rsp, but the frame register was set before the "
     "allocation, and then they count from it"},
    {"node-26", 0x28a69fc, kBuiltin},
    {"node-26", 0x28b5d0e, kBuiltin},
    {"node-26", 0x28b6540, kBuiltin},
    {"node-20", 0xd36e9e, kBuiltin},
    {"node-20", 0xd3700f, kBuiltin},
    {"node-20", 0xd371b2, kBuiltin},
    {"node-20", 0xd4227b, kBuiltin},
    {"node-20", 0xd42c24, kBuiltin},
    {"node-20", 0xd43b4e, kBuiltin},
};

struct Tally {
  std::size_t functions = 0, fragments = 0, with_epilogue = 0;
  std::size_t prologue_states = 0, epilogue_states = 0;
  std::size_t prologues_not_run = 0, paths = 0, paths_not_provable = 0;
  std::size_t wrong = 0;
  std::size_t plain_jumps = 0, go_without_frame = 0, known = 0;  // wrong, for known reasons
  std::vector<std::string> wrong_functions;                      // one line each
};

// ---- where epilogues may be ---------------------------------------------------------------------------------------

// Instructions that compilers put between a body and its return: restores, and releases of the frame. Unwinders accept
// fewer.
bool belongs_to_epilogue(const ZydisDecodedInstruction& instruction, const ZydisDecodedOperand* operands) {
  const bool from_memory = operands[1].type == ZYDIS_OPERAND_TYPE_MEMORY;
  const bool to_register = operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER;
  switch (instruction.mnemonic) {
    case ZYDIS_MNEMONIC_POP:
    case ZYDIS_MNEMONIC_LEAVE:
    case ZYDIS_MNEMONIC_VZEROUPPER: return true;
    case ZYDIS_MNEMONIC_ADD: return to_register && operands[0].reg.value == ZYDIS_REGISTER_RSP;
    case ZYDIS_MNEMONIC_LEA: return true;
    case ZYDIS_MNEMONIC_MOV: return to_register && (from_memory || operands[1].type == ZYDIS_OPERAND_TYPE_REGISTER);
    case ZYDIS_MNEMONIC_MOVAPS:
    case ZYDIS_MNEMONIC_MOVUPS:
    case ZYDIS_MNEMONIC_MOVDQA:
    case ZYDIS_MNEMONIC_MOVDQU:
    case ZYDIS_MNEMONIC_VMOVAPS:
    case ZYDIS_MNEMONIC_VMOVUPS:
    case ZYDIS_MNEMONIC_VMOVDQA:
    case ZYDIS_MNEMONIC_VMOVDQU: return to_register && from_memory;
    default: return false;
  }
}

// RVAs at which a run of such instructions begins that ends with a return or a jump out of the function.
std::vector<std::uint32_t> epilogue_starts(const winx64::Functions& functions, const RuntimeFunction& function) {
  std::vector<std::uint32_t> starts;
  ZydisDecoder decoder;
  ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  const std::uint32_t length = std::min(function.end - function.begin, kLongestFunction);
  const ByteView code = functions.bytes(function.begin, length);
  std::uint32_t run = 0;
  ZydisDecodedInstruction instruction;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  for (std::uint32_t at = 0; at < code.size();) {
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, code.u8() + at, code.size() - at, &instruction, operands)))
      break;
    const std::uint32_t next = at + instruction.length;
    bool exit = instruction.mnemonic == ZYDIS_MNEMONIC_RET;
    if (instruction.mnemonic == ZYDIS_MNEMONIC_JMP) {
      if (operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE) {
        const std::int64_t target = static_cast<std::int64_t>(function.begin) + next + operands[0].imm.value.s;
        exit = target < function.begin || target >= function.end;
      } else {
        exit = true;
      }
    }
    if (exit) starts.push_back(function.begin + run);
    if (exit || !belongs_to_epilogue(instruction, operands)) run = next;
    at = next;
  }
  return starts;
}

// ---- one file -----------------------------------------------------------------------------------------------------

class FileTruth {
 public:
  FileTruth(std::string name, const image::PeImage& image, const Convention& convention, Tally& tally)
      : name_(std::move(name)),
        image_(image),
        convention_(convention),
        functions_(image),
        emulator_(image),
        tally_(tally) {}

  [[nodiscard]] const winx64::Functions& functions() const { return functions_; }
  [[nodiscard]] bool ok() const { return emulator_.ok(); }

  void function(const RuntimeFunction& function) {
    const auto chain = chain_of(function);
    if (chain.empty()) return;
    function_ = function;
    wrong_here_ = 0;
    call_ = emulator_.call(chain.back().function.begin);
    MachineState state = call_;
    // The root's prologue, then those of the fragments down to this one.
    for (std::size_t i = chain.size(); i-- > 0;) {
      const bool own = i == 0;
      if (!enter(chain[i], own, state)) {
        ++tally_.prologues_not_run;
        return;
      }
    }
    if (chain[0].info.frame_register != 0) state = past_allocation(state);
    edge_ = state;
    ++(chain.size() == 1 ? tally_.functions : tally_.fragments);
    bool any = false;
    for (const std::uint32_t start : epilogue_starts(functions_, function)) {
      if (start < function.begin + chain[0].info.prolog_size && chain[0].info.prolog_size != 0) continue;
      ++tally_.paths;
      const bool proved = epilogue(start, scrambled(state, chain)) || epilogue(start, state);
      any = any || proved;
      if (!proved) ++tally_.paths_not_provable;
    }
    if (any) ++tally_.with_epilogue;
  }

 private:
  struct Link {
    RuntimeFunction function;
    UnwindInfo info;
  };

  [[nodiscard]] std::uint64_t address(std::uint32_t rva) const { return image_.image_base() + rva; }
  // Separates the states of one activation from those of functions that it calls, itself included.
  class Activation {
   public:
    Activation(std::uint64_t begin, std::uint64_t end) : begin_(begin), end_(end) {}
    bool is_at(const MachineState& state) {
      const bool within = state.rip >= begin_ && state.rip < end_;
      if (called_at_ != 0) {
        if (!within || state.rsp() <= called_at_) return false;
        called_at_ = 0;  // returned
      } else if (state.rsp() + 8 == last_rsp_ && (!within || state.rip == begin_)) {
        called_at_ = state.rsp();
        return false;
      }
      last_rsp_ = state.rsp();
      return within;
    }

   private:
    std::uint64_t begin_, end_;
    std::uint64_t last_rsp_ = 0;
    std::uint64_t called_at_ = 0;  // where the return address stands; 0: in no call
  };

  [[nodiscard]] bool inside(std::uint64_t rip) const {
    return rip >= address(function_.begin) && rip < address(function_.end);
  }

  // The entry and its parents.
  [[nodiscard]] std::vector<Link> chain_of(RuntimeFunction function) const {
    std::vector<Link> chain;
    for (;;) {
      const auto info = winx64::read_unwind_info(image_, function.info);
      if (!info || info->version > 2 || chain.size() > winx64::kMaxChain) return {};
      chain.push_back({function, *info});
      if (!info->chained) return chain;
      function = *info->chained;
    }
  }

  // Runs a prologue. States count if it is the function's own. Code with codes but no prologue is reached by a jump
  // from another part of its function, which made the frame (MSVC's fragments, GCC's .cold parts). Here the frame is
  // made by the codes, so only an epilogue's way back to the caller proves anything.
  bool enter(const Link& link, bool own, MachineState& state) {
    state.rip = address(link.function.begin);
    if (link.info.chained || (link.info.prolog_size == 0 && link.info.slot_count != 0)) fabricate(link.info, state);
    if (link.info.prolog_size == 0 && (link.info.chained || link.info.slot_count != 0)) return true;
    const std::uint64_t edge = state.rip + link.info.prolog_size;
    if (link.info.prolog_size != 0) {
      bool clean = false;
      Activation activation(address(link.function.begin), address(link.function.end));
      const auto visit = [&](const MachineState& at) {
        if (activation.is_at(at) && own) check(at, tally_.prologue_states);
        return true;
      };
      state = emulator_.run(state, edge, kLimit, visit, clean);
      if (!clean) return false;
    }
    if (own) check(state, tally_.prologue_states);
    return true;
  }

  // With a frame register, the prologue may end before the allocation (Go's always does): on to the first instruction
  // behind it, if it comes soon.
  MachineState past_allocation(const MachineState& edge) {
    MachineState found = edge;
    unsigned count = 0;
    Activation activation(address(function_.begin), address(function_.end));
    const auto visit = [&](const MachineState& at) {
      if (!activation.is_at(at) || ++count > 16) return false;
      if (at.rip != edge.rip) check(at, tally_.prologue_states);
      found = at.rsp() < edge.rsp() ? at : edge;
      return at.rsp() == edge.rsp();
    };
    bool clean = false;
    emulator_.run(edge, PeEmulator::kReturn, 32, visit, clean);
    return found;
  }

  void fabricate(const UnwindInfo& info, MachineState& state) {
    std::vector<winx64::UnwindCode> codes;
    (void)winx64::each_code(info, [&](const winx64::UnwindCode& code) {
      if (code.offset == 0) codes.push_back(code);
    });
    std::reverse(codes.begin(), codes.end());
    bool framed = info.chained.has_value() && info.frame_register != 0;
    for (const winx64::UnwindCode& code : codes) {
      std::uint64_t& rsp = state.integer[winx64::kRsp];
      const std::uint64_t base = framed ? state.integer[info.frame_register] - info.frame_offset * 16U : rsp;
      switch (code.operation) {
        case winx64::Operation::kPushNonvol:
          rsp -= 8;
          emulator_.stack().write(rsp, call_.integer[code.info]);
          break;
        case winx64::Operation::kAllocSmall:
        case winx64::Operation::kAllocLarge: rsp -= code.value; break;
        case winx64::Operation::kSaveNonvol:
        case winx64::Operation::kSaveNonvolFar:
          emulator_.stack().write(base + code.value, call_.integer[code.info]);
          break;
        case winx64::Operation::kSaveXmm128:
        case winx64::Operation::kSaveXmm128Far:
          emulator_.stack().write(base + code.value, call_.xmm[code.info][0]);
          emulator_.stack().write(base + code.value + 8, call_.xmm[code.info][1]);
          break;
        case winx64::Operation::kSetFpreg:
          state.integer[info.frame_register] = rsp + code.value;
          framed = true;
          break;
        default: break;
      }
    }
  }
  // What the prologue saved the body may use: other values, so that a value that was only left alone is not taken for
  // one that was found.
  MachineState scrambled(MachineState state, const std::vector<Link>& chain) {
    const MachineState other = emulator_.call(0);
    for (const Link& link : chain) {
      (void)winx64::each_code(link.info, [&](const winx64::UnwindCode& code) {
        switch (code.operation) {
          case winx64::Operation::kPushNonvol:
          case winx64::Operation::kSaveNonvol:
          case winx64::Operation::kSaveNonvolFar: state.integer[code.info] = other.integer[code.info]; break;
          case winx64::Operation::kSaveXmm128:
          case winx64::Operation::kSaveXmm128Far: state.xmm[code.info] = other.xmm[code.info]; break;
          default: break;
        }
      });
    }
    for (const Link& link : chain) {  // but not the register that the frame hangs on
      if (link.info.frame_register != 0)
        state.integer[link.info.frame_register] = edge_.integer[link.info.frame_register];
    }
    return state;
  }

  // From the state at the body's edge to the caller, or to the function that a tail jump goes to.
  bool epilogue(std::uint32_t start, MachineState state) {
    state.rip = address(start);
    std::vector<MachineState> states;
    const auto visit = [&](const MachineState& at) {
      if (inside(at.rip)) states.push_back(at);
      return inside(at.rip) && states.size() < 64;
    };
    bool clean = false;
    const MachineState end = emulator_.run(state, PeEmulator::kReturn, 64, visit, clean);
    const bool returned = clean && end.rsp() >= call_.rsp() + 8 && end.rip == PeEmulator::kReturn;
    const bool jumped = !clean && !inside(end.rip) && end.rsp() == call_.rsp();
    if ((!returned && !jumped) || !restored(end)) return false;
    if (reloads_frame_register(states)) return false;
    for (const MachineState& at : states) check(at, tally_.epilogue_states, end.rsp() + (jumped ? 8 : 0));
    return true;
  }

  // From a slot that the body would have filled (Go's assembly): what it is then is no state of a real run.
  [[nodiscard]] bool reloads_frame_register(const std::vector<MachineState>& states) const {
    const auto info = winx64::read_unwind_info(image_, function_.info);
    const unsigned reg = info ? info->frame_register : 0;
    for (std::size_t i = 1; reg != 0 && i < states.size(); ++i) {
      if (states[i].integer[reg] != states[i - 1].integer[reg] && states[i].rsp() == states[i - 1].rsp()) return true;
    }
    return false;
  }

  [[nodiscard]] bool restored(const MachineState& state) const {
    for (const unsigned reg : convention_.integer) {
      if (state.integer[reg] != call_.integer[reg]) return false;
    }
    for (unsigned i = convention_.first_xmm; i < kXmms; ++i) {
      if (state.xmm[i] != call_.xmm[i]) return false;
    }
    return true;
  }

  void check(const MachineState& state, std::size_t& count) { check(state, count, call_.rsp() + 8); }
  void check(const MachineState& state, std::size_t& count, std::uint64_t caller_rsp) {
    ++count;
    winx64::Unwound unwound;
    winx64::SavedAddresses saved;
    // By the codes, and by what is kept of the pc then.
    const bool same = test::same_when_known(functions_, image_.image_base(), emulator_.stack(), state.registers());
    const auto ok =
        winx64::virtual_unwind(functions_, image_.image_base(), emulator_.stack(), state.registers(), unwound, &saved);
    std::string what;
    if (!same) what = " otherwise once the pc is known";
    if (!ok) {
      what += ok.error().text();
    } else {
      if (unwound.caller.pc() != CodeAddress::return_address(PeEmulator::kReturn))
        what += fmt::format(" rip={:#x}", unwound.caller.pc().value());
      // `ret n` (V8's builtins): before it nothing says that the caller's rsp will be n higher; its frame is the same.
      if (unwound.caller.sp() != caller_rsp && unwound.caller.sp() != call_.rsp() + 8)
        what += fmt::format(" rsp{:+}", static_cast<std::int64_t>(unwound.caller.sp() - caller_rsp));
      for (const unsigned reg : convention_.integer) {
        if (unwound.caller.get(winx64::dwarf_number(reg)) != call_.integer[reg])
          what += fmt::format(" {}", winx64::register_name(reg));
      }
      for (unsigned i = convention_.first_xmm; i < kXmms; ++i) {
        std::array<std::uint64_t, 2> value = state.xmm[i];
        if (saved.xmm[i] != 0 && !emulator_.stack().read(saved.xmm[i], value.data(), 16))
          what += fmt::format(" xmm{}?", i);
        if (value != call_.xmm[i]) what += fmt::format(" xmm{}", i);
      }
    }
    if (what.empty()) return;
    if (is_plain_indirect_jump(state.rip)) {
      ++tally_.plain_jumps;
      return;
    }
    // Go's call of morestack stands behind the body and runs before the prologue.
    if (&convention_ == &kGo && state.rsp() == call_.rsp()) {
      ++tally_.go_without_frame;
      return;
    }
    for (const KnownWrong& known : kKnownWrong) {
      if (known.begin == function_.begin && name_ == known.file) {
        ++tally_.known;
        return;
      }
    }
    ++tally_.wrong;
    if (wrong_here_++ == 0)
      tally_.wrong_functions.push_back(fmt::format("{}: function {:#x}..{:#x} info {:#x} at {:#x}: {}", name_,
                                                   function_.begin, function_.end, function_.info,
                                                   state.rip - image_.image_base(), what));
  }

  // jmp r64 without the REX.W that marks a tail call: Windows takes it for a switch's jump within the body, and here as
  // there nothing says otherwise. winegcc's delay-load thunks, written by hand, end so.
  [[nodiscard]] bool is_plain_indirect_jump(std::uint64_t rip) const {
    const ByteView code = functions_.bytes(static_cast<std::uint32_t>(rip - image_.image_base()), 3);
    if (code.size() < 3) return false;
    const unsigned rex = (code.u8()[0] & 0xf8) == 0x40 ? 1 : 0;
    return code.u8()[rex] == 0xff && (code.u8()[rex + 1] & 0xf8) == 0xe0;
  }

  std::string name_;
  const image::PeImage& image_;
  const Convention& convention_;
  winx64::Functions functions_;
  PeEmulator emulator_;
  Tally& tally_;
  RuntimeFunction function_;
  MachineState call_;
  MachineState edge_;
  std::size_t wrong_here_ = 0;
};

TEST(WinX64Truth, CallerRecoveredAtEveryState) {
  const auto corpora = test::pe_corpora(WINDLASS_PE_CORPORA, 40);
  if (corpora.empty()) GTEST_SKIP() << test::missing_corpora(WINDLASS_PE_CORPORA);
  const std::size_t wanted = test::whole() ? SIZE_MAX : 4000;  // functions a corpus
  for (const test::PeCorpus& corpus : corpora) {
    Tally tally;
    for (const std::string& path : corpus.files) {
      const auto opened = test::open_pe(path);
      ASSERT_TRUE(opened) << path;
      const image::PeImage& image = opened->image;
      FileTruth truth(corpus.name.starts_with("node") ? corpus.name : path.substr(path.rfind('/') + 1), image,
                      corpus.name == "esbuild" ? kGo : kWindows, tally);
      ASSERT_TRUE(truth.ok()) << path;
      const std::size_t count = truth.functions().size();
      const std::size_t step = std::max<std::size_t>(1, count * corpus.files.size() / wanted);
      for (std::size_t i = 0; i < count; i += step) truth.function(truth.functions().stored(i));
    }
    std::printf(
        "%-8s %zu functions + %zu fragments, %zu with a proved epilogue; states: %zu prologue and body, %zu epilogue; "
        "%zu wrong; known to be: %zu at a tail call that is not marked as one, %zu before Go's prologue, %zu listed; "
        "%zu prologues could not be run, %zu of %zu exits not "
        "provable\n",
        corpus.name.c_str(), tally.functions, tally.fragments, tally.with_epilogue, tally.prologue_states,
        tally.epilogue_states, tally.wrong, tally.plain_jumps, tally.go_without_frame, tally.known,
        tally.prologues_not_run, tally.paths_not_provable, tally.paths);
    for (const std::string& line : tally.wrong_functions) std::printf("  %s\n", line.c_str());
    EXPECT_EQ(tally.wrong, 0U);
    EXPECT_GT(tally.epilogue_states, 0U);
  }
}

}  // namespace
}  // namespace windlass
