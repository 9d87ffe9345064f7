// The counterpart of RtlVirtualUnwind: undoes a prologue as far as it ran, or runs the rest of an epilogue. Sources:
// "x64 exception handling", "Unwind procedure"; where that text is silent, .NET's copy of Windows' unwinder
// (coreclr/unwinder/amd64), named below as Windows. No allocation, lock or system call of its own; signal-safe if
// `memory` is.
#pragma once

#include <cstdint>
#include <optional>

#include "walk/memory.h"
#include "windlass/registers.h"
#include "winx64/epilogue.h"
#include "winx64/read.h"
#include "winx64/registers.h"

namespace windlass::winx64 {

// What the unwinder needs of an image: `find` a function by RVA, and `bytes` of unwind information and code (at most
// `wanted`, fewer or none where the image has no more; valid until the next call).
template <typename I>
concept UnwindImage = requires(const I& image, std::uint32_t rva) {
  { image.find(rva) } -> std::same_as<std::optional<RuntimeFunction>>;
  { image.bytes(rva, rva) } -> std::same_as<ByteView>;
};
static_assert(UnwindImage<Functions>);

enum class Position : std::uint8_t { kLeaf, kPrologue, kBody, kEpilogue };

// Where each preserved register was saved; 0: it is still in the register.
struct SavedAddresses {
  std::uint64_t integer[16] = {};  // by instruction number
  std::uint64_t xmm[16] = {};      // xmm6-xmm15
  std::uint64_t return_address = 0;
};

struct Unwound {
  // Just after the call returned: rip, rsp and the preserved registers (and what else was popped).
  Registers caller{Architecture::kX86_64};
  // What handlers get as the frame: rsp in the body, or what the frame register says.
  std::uint64_t establisher = 0;
  Position position = Position::kBody;
  bool machine_frame = false;  // rip was interrupted, it is no return address
  // Only where control was in the body: neither prologue nor epilogue has handlers. RVAs; 0: none.
  std::uint32_t handler = 0;
  std::uint32_t handler_data = 0;
  std::uint8_t handler_flags = 0;  // kEhandler, kUhandler: in which pass it is called
};

// ---- what unwinding and lowering share ----------------------------------------------------------------------------

// An indirect entry stands for another one; Windows follows one level.
template <UnwindImage I>
Expected<RuntimeFunction> direct(const I& image, const RuntimeFunction& function) {
  if (!function.indirect()) return function;
  const auto other = image.bytes(function.info & ~1U, 12).template at<RuntimeFunction>(0);
  if (!other) return fail(ErrorCode::kOutOfRange, "indirect function entry is outside the image: RVA", function.info);
  return *other;
}

template <UnwindImage I>
Expected<UnwindInfo> info_of(const I& image, const RuntimeFunction& function) {
  constexpr std::uint32_t kLongest = 4 + 2 * 256 + 12;
  return parse_unwind_info(image.bytes(function.info, kLongest), function.info);
}

// The entry at the end of a chain. Nothing: it cannot be read.
template <UnwindImage I>
std::optional<RuntimeFunction> primary(const I& image, RuntimeFunction function) {
  for (unsigned depth = 0; depth <= kMaxChain; ++depth) {
    const auto here = direct(image, function);
    const auto info = here ? info_of(image, *here) : std::unexpected(here.error());
    if (!info) return std::nullopt;
    if (!info->chained) return *here;
    function = *info->chained;
  }
  return std::nullopt;
}

// Codes without a prologue: whoever jumps there has made the frame.
template <UnwindImage I>
bool has_frame_on_entry(const I& image, const RuntimeFunction& function) {
  const auto here = direct(image, function);
  const auto info = here ? info_of(image, *here) : std::unexpected(here.error());
  return info && info->version == 1 && info->prolog_size == 0 && info->slot_count != 0 && !info->chained;
}

// Does the instruction before `rva` free a frame? Code is not read backwards with certainty; this decides only where
// the target of a jump leaves it open.
template <UnwindImage I>
bool frees_frame_before(const I& image, const RuntimeFunction& function, std::uint32_t rva) {
  constexpr std::uint32_t kLongest = 7;
  if (rva - function.begin < kLongest) return false;
  const ByteView code = image.bytes(rva - kLongest, kLongest);
  return code.size() == kLongest && ends_with_release(code);
}

// A jump, matched at `rva`, is a tail call if it goes to another function, or to the begin of its own. Windows asks no
// more. But V8's builtins and GCC's .cold parts jump into the middle of other entries, and GCC's functions to their
// .cold parts, with their frames in place; Windows unwinds those wrongly. Such a jump is a tail call only behind what
// frees a frame.
template <UnwindImage I>
bool jump_leaves(const I& image, const RuntimeFunction& function, const UnwindInfo& info, std::uint32_t rva,
                 const EpilogueMatch& match) {
  const std::int64_t target_rva = rva + match.target;
  if (target_rva < 0 || target_rva >> 32 != 0) return true;
  const auto target = static_cast<std::uint32_t>(target_rva);
  if (target >= function.begin && target < function.end) return target == function.begin && !info.has(kChaininfo);
  const auto other = image.find(target);
  if (!other) return true;
  const auto mine = primary(image, function);
  const auto its = primary(image, *other);
  if (mine && its && mine->begin == its->begin) return target == mine->begin;
  if (target == other->begin && !has_frame_on_entry(image, *other)) return true;
  return match.pop_count != 0 || match.release != EpilogueMatch::Release::kNone ||
         frees_frame_before(image, function, rva);
}

// The slot of the first push; slot_count: there is none.
inline unsigned first_push(const UnwindInfo& info) {
  for (unsigned index = 0; index < info.slot_count;) {
    const auto code = code_at(info, index);
    if (!code) return info.slot_count;
    if (code->operation == Operation::kPushNonvol || code->operation == Operation::kPushMachframe) return index;
    index += code->slots;
  }
  return info.slot_count;
}

// One unwind. See virtual_unwind.
template <walk::TargetMemory M, UnwindImage I>
class Unwinder {
 public:
  Unwinder(const I& image, std::uint64_t base, const M& memory, const Registers& frame, SavedAddresses* saved)
      : image_(image), base_(base), memory_(memory), frame_(frame), saved_(saved) {}

  Expected<void> run(Unwound& to) {
    if (!frame_.has_sp()) return lost(kRsp);
    keep_preserved();
    const CodeAddress pc = frame_.pc();
    const std::uint64_t rva = pc.lookup() - base_;
    const auto found = rva >> 32 == 0 ? image_.find(static_cast<std::uint32_t>(rva)) : std::nullopt;
    Unwound result;
    if (!found) {
      result.position = Position::kLeaf;
      result.establisher = rsp_;
      return finish(pop_return(0), result, to);
    }
    const auto function = direct(image_, *found);
    if (!function) return std::unexpected(function.error());
    pc_rva_ = static_cast<std::uint32_t>(pc.value() - base_);
    // A return address behind the function's last call belongs to the next function's code.
    end_ = found->end;
    const bool in_range = pc_rva_ < end_;
    return finish(unwind(*function, in_range, result), result, to);
  }

 private:
  Expected<void> unwind(const RuntimeFunction& function, bool in_range, Unwound& result) {
    const auto info = info_of(image_, function);
    if (!info) return std::unexpected(info.error());
    if (info->version > 2)
      return fail(ErrorCode::kUnsupported, "unwind information of version 3 is not executed: RVA", info->rva);
    if (const auto ok = set_establisher(function, *info, result); !ok) return ok;
    if (in_range) {
      const auto done = info->version == 1 ? run_epilogue(function, *info) : undo_epilogue(function, *info);
      if (!done) return std::unexpected(done.error());
      if (*done) {
        result.position = Position::kEpilogue;
        return {};
      }
    }
    return undo_prologues(function, *info, result);
  }

  // The frame register counts from where its SET_FPREG ran; also in fragments, whose parents ran it.
  Expected<void> set_establisher(const RuntimeFunction& function, const UnwindInfo& info, Unwound& result) {
    result.establisher = rsp_;
    if (info.frame_register == 0) return {};
    const std::uint32_t offset = pc_rva_ - function.begin;
    std::uint32_t displacement = info.frame_offset * 16U;
    bool set = offset >= info.prolog_size || info.has(kChaininfo);
    for (unsigned index = 0; index < info.slot_count && (!set || info.frame_offset == 15);) {
      const auto code = code_at(info, index);
      if (!code) return std::unexpected(code.error());
      if (code->operation == Operation::kSetFpreg || code->operation == Operation::kSetFpregLarge) {
        set = set || offset >= code->offset;
        displacement = code->value;
        break;
      }
      index += code->slots;
    }
    if (!set) return {};
    if (!has(info.frame_register)) return lost(info.frame_register);
    result.establisher = get(info.frame_register) - displacement;
    return {};
  }

  // ---- epilogues ----

  // Version 1: by the instructions at pc. Windows does so before anything else, also where pc is in the prologue. Wine
  // does it only if there are unwind codes ("since Windows 10 1809"); without any, both ways come to the same unless
  // there is a release or a pop, and then the code's word is better.
  Expected<bool> run_epilogue(const RuntimeFunction& function, const UnwindInfo& info) {
    EpilogueMatch match;
    if (!match_epilogue(image_.bytes(pc_rva_, kEpilogueWindow), info.frame_register, end_ - pc_rva_, match))
      return false;
    if (match.exit == EpilogueMatch::Exit::kJump && !jump_leaves(image_, function, info, pc_rva_, match)) return false;
    if (match.release == EpilogueMatch::Release::kAdd) {
      rsp_ += static_cast<std::uint64_t>(static_cast<std::int64_t>(match.displacement));
    } else if (match.release == EpilogueMatch::Release::kLea) {
      if (!has(match.base)) return fail_lost(match.base);
      rsp_ = get(match.base) + static_cast<std::uint64_t>(static_cast<std::int64_t>(match.displacement));
    }
    for (unsigned i = 0; i < match.pop_count; ++i) {
      if (const auto ok = pop(match.pops[i]); !ok) return std::unexpected(ok.error());
    }
    // Windows adds 8 whatever n is; the processor and Wine add 8 + n, which is where the caller's stack then is.
    if (const auto ok = pop_return(match.return_pops); !ok) return std::unexpected(ok.error());
    return true;
  }

  // Version 2: by the epilogues the codes tell.
  Expected<bool> undo_epilogue(const RuntimeFunction& function, const UnwindInfo& info) {
    std::optional<std::uint32_t> into;
    each_epilog(info, function.end, [&](const Epilog& epilog) {
      if (!into && pc_rva_ - epilog.begin < epilog.size) into = pc_rva_ - epilog.begin;
    });
    if (!into) return false;
    UnwindInfo at = info;
    unsigned first = first_push(at);
    for (unsigned depth = 0; first == at.slot_count && at.chained; ++depth) {
      if (depth == kMaxChain) return chain_too_long(info.rva);
      const auto parent = info_of(image_, *at.chained);
      if (!parent) return std::unexpected(parent.error());
      at = *parent;
      first = first_push(at);
    }
    return undo_pushes(at, first, *into);
  }

  // The pops that have not run yet, then the return. A pop of r8-r15 has 2 bytes. An ALLOC_SMALL of 8 behind the pushes
  // stands for pushfq, undone by a pop of one byte.
  Expected<bool> undo_pushes(const UnwindInfo& info, unsigned index, std::uint32_t into) {
    std::uint32_t offset = 0;
    for (; index < info.slot_count; ++index) {
      const auto code = code_at(info, index);
      if (!code) return std::unexpected(code.error());
      if (code->operation == Operation::kPushMachframe) {
        if (const auto ok = machine_frame(code->info != 0); !ok) return std::unexpected(ok.error());
        return true;
      }
      const bool flags = code->operation == Operation::kAllocSmall && code->info == 0;
      if (code->operation != Operation::kPushNonvol && !flags) break;
      if (offset >= into) {
        if (flags) {
          rsp_ += 8;
        } else if (const auto ok = pop(code->info); !ok) {
          return std::unexpected(ok.error());
        }
      }
      offset += code->operation == Operation::kPushNonvol && code->info >= 8 ? 2 : 1;
    }
    if (const auto ok = pop_return(0); !ok) return std::unexpected(ok.error());
    return true;
  }

  // ---- prologues ----

  Expected<void> undo_prologues(RuntimeFunction function, UnwindInfo info, Unwound& result) {
    for (unsigned depth = 0;; ++depth) {
      const std::uint32_t offset = pc_rva_ - function.begin;  // huge in fragments before their parent: all ran
      if (const auto ok = undo_codes(info, offset, result.establisher); !ok) return ok;
      if (!info.chained) {
        result.position = offset < info.prolog_size ? Position::kPrologue : Position::kBody;
        break;
      }
      if (depth == kMaxChain) return std::unexpected(chain_too_long(info.rva).error());
      function = *info.chained;
      const auto parent = info_of(image_, function);
      if (!parent) return std::unexpected(parent.error());
      info = *parent;
    }
    // Windows asks the last entry of the chain, also for fragments.
    if (result.position == Position::kBody && info.handler != 0) {
      result.handler = info.handler;
      result.handler_data = info.handler_data;
      result.handler_flags = info.flags & (kEhandler | kUhandler);
    }
    return machine_frame_ ? Expected<void>() : pop_return(0);
  }

  Expected<void> undo_codes(const UnwindInfo& info, std::uint32_t offset, std::uint64_t establisher) {
    for (unsigned index = 0; index < info.slot_count;) {
      const auto code = code_at(info, index);
      if (!code) return std::unexpected(code.error());
      index += code->slots;
      if (code->operation == Operation::kEpilog || offset < code->offset) continue;
      if (const auto ok = undo(info, *code, establisher); !ok) return ok;
    }
    return {};
  }

  Expected<void> undo(const UnwindInfo& info, const UnwindCode& code, std::uint64_t establisher) {
    switch (code.operation) {
      case Operation::kPushNonvol: return pop(code.info);
      case Operation::kAllocLarge:
      case Operation::kAllocSmall: rsp_ += code.value; return {};
      case Operation::kSetFpreg:
      case Operation::kSetFpregLarge:
        if (!has(info.frame_register)) return lost(info.frame_register);
        rsp_ = get(info.frame_register) - code.value;
        return {};
      case Operation::kSaveNonvol:
      case Operation::kSaveNonvolFar: return load(code.info, establisher + code.value);
      case Operation::kSaveXmm128:
      case Operation::kSaveXmm128Far:
        if (saved_ != nullptr) saved_->xmm[code.info] = establisher + code.value;
        return {};
      case Operation::kPushMachframe: return machine_frame(code.info != 0);
      default:
        return fail(ErrorCode::kUnsupported, "unwind operation that nothing emits: RVA", info.rva,
                    static_cast<std::uint64_t>(code.operation));
    }
  }

  // ---- the state ----

  [[nodiscard]] bool has(unsigned number) const {
    return number == kRsp || next_.has(dwarf_number(number)) || frame_.has(dwarf_number(number));
  }
  [[nodiscard]] std::uint64_t get(unsigned number) const {
    if (number == kRsp) return rsp_;
    const RegisterNumber reg = dwarf_number(number);
    return next_.has(reg) ? next_.get(reg) : frame_.get(reg);
  }

  void keep_preserved() {
    rsp_ = frame_.sp();
    for (const unsigned number : {3U, 5U, 6U, 7U, 12U, 13U, 14U, 15U}) {
      const RegisterNumber reg = dwarf_number(number);
      if (frame_.has(reg)) next_.set(reg, frame_.get(reg));
    }
  }

  Expected<std::uint64_t> read(std::uint64_t address) {
    std::uint64_t value = 0;
    if (!memory_.read(address, &value, sizeof value))
      return fail(ErrorCode::kUnreadable, "stack is not readable", address, sizeof value);
    return value;
  }

  Expected<void> load(unsigned number, std::uint64_t address) {
    const auto value = read(address);
    if (!value) return std::unexpected(value.error());
    if (number == kRsp) {
      rsp_ = *value;
    } else {
      next_.set(dwarf_number(number), *value);
      if (saved_ != nullptr) saved_->integer[number] = address;
    }
    return {};
  }

  Expected<void> pop(unsigned number) {
    const std::uint64_t at = rsp_;
    rsp_ += 8;
    return load(number, at);
  }

  Expected<void> pop_return(std::uint16_t arguments) {
    const auto value = read(rsp_);
    if (!value) return std::unexpected(value.error());
    rip_ = *value;
    if (saved_ != nullptr) saved_->return_address = rsp_;
    rsp_ += 8ULL + arguments;
    return {};
  }

  // What an interrupt pushed: [error code] rip cs rflags rsp ss.
  Expected<void> machine_frame(bool error_code) {
    const std::uint64_t at = rsp_ + (error_code ? 8 : 0);
    const auto rip = read(at);
    const auto rsp = rip ? read(at + 24) : rip;
    if (!rsp) return std::unexpected(rsp.error());
    rip_ = *rip;
    rsp_ = *rsp;
    if (saved_ != nullptr) saved_->return_address = at;
    machine_frame_ = true;
    return {};
  }

  Expected<void> finish(const Expected<void>& ok, Unwound& result, Unwound& to) {
    if (!ok) return ok;
    result.machine_frame = machine_frame_;
    next_.set_sp(rsp_);
    next_.set_pc(machine_frame_ ? CodeAddress::instruction(rip_) : CodeAddress::return_address(rip_));
    result.caller = next_;
    to = result;
    return {};
  }

  [[nodiscard]] std::unexpected<Error> fail_lost(unsigned number) const {
    return fail(ErrorCode::kNotFound, "register is not known in this frame", frame_.pc().value(), dwarf_number(number));
  }
  [[nodiscard]] Expected<void> lost(unsigned number) const { return fail_lost(number); }
  [[nodiscard]] static Expected<bool> chain_too_long(std::uint32_t rva) {
    return fail(ErrorCode::kLimit, "chain of unwind information is longer than 32: RVA", rva);
  }

  const I& image_;
  const std::uint64_t base_;
  const M& memory_;
  const Registers& frame_;
  SavedAddresses* const saved_;
  Registers next_{Architecture::kX86_64};
  std::uint64_t rsp_ = 0;
  std::uint64_t rip_ = 0;
  std::uint32_t pc_rva_ = 0;
  std::uint32_t end_ = 0;  // of the entry that contains pc
  bool machine_frame_ = false;
};

// The caller of `frame`, whose pc lies in the image loaded at `base`; code no entry covers is a leaf's. `saved` may be
// null. On an error nothing is changed but `saved`. Bounded by 33 informations of 255 slots. Errors: kUnreadable (stack
// address), kNotFound (a register that is needed is not known), and what reading the information can yield (RVAs).
template <walk::TargetMemory M, UnwindImage I>
Expected<void> virtual_unwind(const I& image, std::uint64_t base, const M& memory, const Registers& frame, Unwound& to,
                              SavedAddresses* saved = nullptr) {
  return Unwinder<M, I>(image, base, memory, frame, saved).run(to);
}

}  // namespace windlass::winx64
