// One function of an ARM64 image compared with the processor. The emulator runs its prologue and its epilogues.
// virtual_unwind must give the made-up caller at every instruction.
#pragma once

#include <functional>
#include <map>
#include <string>

#include <fmt/format.h>

#include "formats/winarm64/exec.h"
#include "support/arm64_emulator.h"

namespace windlass::test {

struct Truth {
  std::size_t functions = 0;  // tried
  std::size_t complete = 0;   // prologue and every epilogue were run to their ends, all states right
  std::size_t states = 0;     // instructions at which the caller was compared
  std::size_t epilogues = 0;  // run to their end
  std::size_t simulated = 0;  // epilogues and fragments whose frame was put together from the codes
  std::size_t packed = 0;
  std::map<std::string, std::size_t> causes;  // why functions or epilogues were not run to the end
  std::map<std::string, std::string> example;
  std::size_t wrong = 0;
  std::string first_wrong;
};

class TruthChecker {
 public:
  // Called with every state at which the caller was compared, and whose caller that is (its pc in x30).
  using Observer = std::function<void(const Registers& state, const Registers& caller)>;

  TruthChecker(const winarm64::Functions& functions, Arm64Emulator& emulator, Truth& truth, Observer observer = {})
      : functions_(functions), emulator_(emulator), truth_(truth), observer_(std::move(observer)) {}

  void check(winarm64::RuntimeFunction function) {
    ++truth_.functions;
    complete_ = true;
    function_ = function;
    winarm64::Expansion storage;
    const auto record = winarm64::read_record(functions_.image(), function, storage);
    if (!record) return cause("not readable: " + std::string(record.error().what));
    record_ = *record;
    if (function.packed()) ++truth_.packed;
    for (const Code& code : sequence(0))
      if (unusual(code.operation)) return cause("system code");
    if (v8_builtin()) return cause("code of V8 that does not begin as its record says");
    if (prologue()) {
      if (record_.single_epilogue) {
        const std::uint32_t size = winarm64::count_instructions(record_.codes, record_.epilogue_index) + 1;
        if (size * 4 <= record_.length) epilogue(record_.length - size * 4, record_.epilogue_index);
      }
      for (std::uint32_t i = 0; i < record_.scope_count(); ++i) {
        const winarm64::EpilogueScope scope = record_.scope(i);
        epilogue(scope.start, scope.index);
      }
    }
    if (complete_) ++truth_.complete;
  }

 private:
  using Operation = winarm64::Operation;
  using Code = winarm64::UnwindCode;
  struct Frame {  // what a sequence of codes undoes: how far sp is moved, and what is stored where from its final value
    std::uint64_t size = 0;
    std::map<unsigned, std::uint64_t> saved;
    bool operator==(const Frame&) const = default;
  };

  static bool unusual(Operation operation) {
    return operation == Operation::kTrapFrame || operation == Operation::kMachineFrame ||
           operation == Operation::kContext || operation == Operation::kEcContext ||
           operation == Operation::kClearUnwoundToCall || operation == Operation::kReserved;
  }

  // V8 gives its builtins records with its own handler, mostly `mov x29,sp; stp x29,lr,[sp,#-16]!`, whatever
  // instructions they begin with. By design such a record is right only in the body of builtins that make this frame.
  [[nodiscard]] bool v8_builtin() const {
    const auto codes = sequence(0);
    if (!record_.has_handler || record_.scope_count() != 0 || record_.single_epilogue || codes.empty()) return false;
    if (codes.back().operation != Operation::kSaveFplrX) return false;
    const std::uint32_t offset = (128 - codes.back().value / 8) & 127;  // stp x29,x30,[sp,#-n]!
    return emulator_.instruction(emulator_.base() + function_.begin) != (0xa980'7bfd | offset << 15);
  }

  void cause(const std::string& why) {
    complete_ = false;
    if (truth_.causes[why]++ == 0) truth_.example[why] = fmt::format("{:#x}", function_.begin);
  }

  // The codes from `index` to the end, without end_c, with save_next made what it stands for.
  std::vector<Code> sequence(std::uint32_t index) const {
    std::vector<Code> codes;
    while (const auto code = winarm64::code_at(record_.codes, index)) {
      if (code->operation == Operation::kEnd) break;
      if (code->operation != Operation::kEndC) codes.push_back(*code);
      index += code->size;
    }
    // save_next: the pair two registers and 16 bytes above that of the code after it.
    for (std::size_t i = codes.size(); i-- > 0;) {
      if (codes[i].operation != Operation::kSaveNext || i + 1 == codes.size()) continue;
      const Code& below = codes[i + 1];
      codes[i] = below;
      codes[i].reg = static_cast<std::uint8_t>(below.reg + 2);
      codes[i].second = static_cast<std::uint8_t>(below.second + 2);
      codes[i].value = (below.writeback ? 0 : below.value) + 16;
      codes[i].writeback = false;
    }
    return codes;
  }
  // Codes behind the first end_c from `index` on: what ran before this fragment's own prologue.
  std::uint32_t behind_end_c(std::uint32_t index) const {
    while (const auto code = winarm64::code_at(record_.codes, index)) {
      if (code->operation == Operation::kEnd) return static_cast<std::uint32_t>(record_.codes.size());
      index += code->size;
      if (code->operation == Operation::kEndC) return index;
    }
    return static_cast<std::uint32_t>(record_.codes.size());
  }

  static RegisterNumber number(const Code& code, unsigned reg) { return winarm64::dwarf_number(code.file, reg); }

  Frame frame_of(std::uint32_t index) const {
    Frame frame;
    const auto codes = sequence(index);
    std::map<unsigned, std::uint64_t> below;  // from sp at that code
    std::uint64_t sp = 0;                     // from sp at the start of the codes
    for (const Code& code : codes) {
      if (code.saves()) {
        const std::uint64_t at = sp + (code.writeback ? 0 : code.value);
        below[number(code, code.reg)] = at;
        if (code.pair) below[number(code, code.second)] = at + (code.file == winarm64::RegisterFile::kQ ? 16 : 8);
        if (code.writeback) sp += code.value;
      } else if (code.operation == Operation::kAllocS || code.operation == Operation::kAllocM ||
                 code.operation == Operation::kAllocL) {
        sp += code.value;
      }
    }
    frame.size = sp;
    for (const auto& [reg, at] : below) frame.saved[reg] = sp - at;
    return frame;
  }

  // Does to `state` and the stack what the prologue that the codes undo has done.
  void perform(const std::vector<Code>& codes, Registers& state) {
    for (std::size_t i = codes.size(); i-- > 0;) {
      const Code& code = codes[i];
      if (code.saves()) {
        if (code.writeback) state.set_sp(state.sp() - code.value);
        const std::uint64_t at = state.sp() + (code.writeback ? 0 : code.value);
        emulator_.write(at, state.get(number(code, code.reg)));
        if (code.pair)
          emulator_.write(at + (code.file == winarm64::RegisterFile::kQ ? 16 : 8),
                          state.get(number(code, code.second)));
        continue;
      }
      switch (code.operation) {
        case Operation::kAllocS:
        case Operation::kAllocM:
        case Operation::kAllocL: state.set_sp(state.sp() - code.value); break;
        case Operation::kSetFp:
        case Operation::kAddFp: state.set(29, state.sp() + code.value); break;
        case Operation::kPacSignLr: state.set(30, Arm64Emulator::sign(state.get(30), state.sp())); break;
        default: break;
      }
    }
  }
  // virtual_unwind at `state` gives the caller.
  bool right(const Registers& state, const char* where) {
    ++truth_.states;
    if (observer_) observer_(state, caller_);
    winarm64::ExecContext context;
    context.image_base = emulator_.base();
    context.vector_length = Arm64Emulator::kVectorLength;
    Registers caller(Architecture::kAArch64);
    const auto unwound = winarm64::virtual_unwind(functions_, context, emulator_, state, caller);
    std::string difference;
    if (!unwound) {
      difference = unwound.error().text();
    } else {
      std::map<unsigned, std::uint64_t> actual;
      caller.for_each([&](RegisterNumber reg, std::uint64_t value) { actual[reg] = value; });
      const auto compare = [&](RegisterNumber reg, std::uint64_t expected) {
        const auto found = actual.find(reg);
        if (found == actual.end())
          difference += fmt::format(" register {} is lost;", reg);
        else if (found->second != expected)
          difference += fmt::format(" register {}: {:#x}, not {:#x};", reg, found->second, expected);
      };
      compare(32, caller_.get(30));
      compare(31, caller_.sp());
      for (RegisterNumber reg = 19; reg < 30; ++reg) compare(reg, caller_.get(reg));
      for (RegisterNumber reg = 72; reg < 80; ++reg) compare(reg, caller_.get(reg));
      if (unwound->establisher_frame != caller_.sp()) difference += " establisher frame";
    }
    if (difference.empty()) return true;
    complete_ = false;
    ++truth_.wrong;
    if (truth_.first_wrong.size() < 2000)
      truth_.first_wrong =
          fmt::format("{} at +{:#x} of the function at {:#x}:{}", where,
                      state.pc().value() - emulator_.base() - function_.begin, function_.begin, difference);
    return false;
  }

  // Runs one instruction of a prologue or epilogue. A call counts as one: to the stack probe, or to MSVC's
  // __security_push_cookie and __security_pop_cookie, which move sp for their caller.
  bool step(Registers& state) {
    const std::uint64_t pc = state.pc().value();
    const bool call = is_call(emulator_.instruction(pc));
    if (!emulator_.step(state)) return false;
    constexpr int kLongest = 200;
    for (int i = 0; call && state.pc().value() != pc + 4; ++i)
      if (i == kLongest || !emulator_.step(state)) return false;
    return true;
  }

  bool prologue() {
    const std::uint64_t begin = emulator_.base() + function_.begin;
    Registers state = emulator_.call(begin);
    caller_ = state;
    const std::uint32_t inherited = behind_end_c(0);
    if (inherited < record_.codes.size()) {
      ++truth_.simulated;
      perform(sequence(inherited), state);
    }
    const std::uint32_t size = winarm64::count_instructions(record_.codes, 0);
    for (std::uint32_t i = 0; i < size; ++i) {
      if (!right(state, "prologue")) return false;
      const std::uint64_t next = state.pc().value() + 4;
      if (!step(state)) {
        cause("prologue faults");
        return false;
      }
      if (state.pc().value() != next) {
        cause("prologue branches");
        return false;
      }
    }
    if (std::uint64_t{size} * 4 >= record_.length) return true;
    clobber(state, frame_of(0));
    body_ = state;
    if (!right(state, "body")) return false;
    // With a frame pointer set last, the body may move sp.
    if (starts_with_set_fp(0)) {
      state.set_sp(state.sp() - 0x70);
      if (!right(state, "body with more stack")) return false;
    }
    return true;
  }

  // What the body may do: every preserved register that was saved has another value.
  void clobber(Registers& state, const Frame& frame) {
    for (const auto& [reg, at] : frame.saved)
      if (reg != 29) state.set(static_cast<RegisterNumber>(reg), emulator_.random());
  }

  // The state in which the epilogue that starts at `start` is entered.
  Registers state_before(std::uint32_t start, std::uint32_t index) {
    const Frame whole = frame_of(0), frame = frame_of(index);
    const std::uint32_t first = emulator_.instruction(emulator_.base() + function_.begin + start);
    Registers state = body_;
    if (frame.saved == whole.saved && frame.size >= whole.size && body_.has_sp()) {
      // The body of a function with a frame pointer may have moved sp further. Either the epilogue frees that first. Or
      // __security_push_cookie did so, called right behind the prologue, and a call at the epilogue's start undoes it.
      std::uint64_t more = frame.size - whole.size;
      const bool cookie = more >= kCookie || (starts_with_set_fp(index) && is_call(first));
      if (cookie && is_call(emulator_.instruction(body_.pc().value()))) {
        if (!step(state)) cause("call behind the prologue faults");
        more -= std::min(more, kCookie);
      }
      state.set_sp(state.sp() - more);
    } else {
      // It ends another frame than the whole prologue's: a part of the function that was entered otherwise.
      state = emulator_.call(0);
      caller_ = state;
      ++truth_.simulated;
      perform(sequence(index), state);
      clobber(state, frame);
    }
    // Likewise where set_fp is said of an `add sp,sp,#n` which makes sp the frame pointer again.
    if (starts_with_set_fp(index) && (first & 0xff80'03ff) == 0x9100'03ff)
      state.set_sp(state.sp() - (std::uint64_t{first >> 10 & 0xfff} << ((first >> 22 & 1) * 12)));
    constexpr std::uint32_t kAddSpX15 = 0x8b2f'73ff;  // add sp,sp,x15,lsl #4: x15 was set in front of the epilogue
    if (const auto codes = sequence(index); first == kAddSpX15 && !codes.empty()) state.set(15, codes[0].value / 16);
    state.set_pc(CodeAddress::instruction(emulator_.base() + function_.begin + start));
    return state;
  }
  static constexpr std::uint64_t kCookie = 16;  // bytes that __security_push_cookie takes
  static bool is_call(std::uint32_t word) { return (word & 0xfc00'0000) == 0x9400'0000; }
  [[nodiscard]] bool starts_with_set_fp(std::uint32_t index) const {
    return index < record_.codes.size() && (record_.codes.u8()[index] == 0xe1 || record_.codes.u8()[index] == 0xe2);
  }

  void epilogue(std::uint32_t start, std::uint32_t index) {
    Registers state = state_before(start, index);
    const std::uint32_t size = winarm64::count_instructions(record_.codes, index);
    for (std::uint32_t i = 0; i <= size; ++i) {
      const std::uint64_t offset = state.pc().value() - emulator_.base() - function_.begin;
      if (offset >= record_.length) return;  // goes on in the next fragment
      if (!right(state, "epilogue")) return;
      if (i == size) break;
      const std::uint64_t next = state.pc().value() + 4;
      // In a fragment this may be __security_pop_cookie, whose cookie a sibling pushed: there is none on this stack.
      if (!step(state)) return cause("epilogue faults");
      if (state.pc().value() != next) return cause("epilogue branches");
    }
    last_instruction(state, index);
  }

  // The frame is gone: what the processor's registers are is the caller's, if this was the end of the function.
  void last_instruction(Registers state, std::uint32_t index) {
    ++truth_.epilogues;
    if (behind_end_c(index) < record_.codes.size()) return;  // only a fragment's part of the frame is
    const std::uint32_t word = emulator_.instruction(state.pc().value());
    const bool returns = word == 0xd65f'03c0 || word == 0xd65f'0fff || word == 0xd65f'0bff;  // ret, retab, retaa
    if (returns && !step(state)) return cause("return faults");
    bool same = state.sp() == caller_.sp() && (!returns || state.pc().value() == caller_.get(30));
    for (RegisterNumber reg = 19; reg < 30; ++reg) same = same && state.get(reg) == caller_.get(reg);
    for (RegisterNumber reg = 72; reg < 80; ++reg) same = same && state.get(reg) == caller_.get(reg);
    if (!same) cause("the processor itself does not return to the caller");
  }

  const winarm64::Functions& functions_;
  Arm64Emulator& emulator_;
  Truth& truth_;
  Observer observer_;
  winarm64::RuntimeFunction function_;
  winarm64::UnwindRecord record_;
  Registers caller_{Architecture::kAArch64};
  Registers body_{Architecture::kAArch64};
  bool complete_ = true;
};

}  // namespace windlass::test
