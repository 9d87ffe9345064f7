// The counterpart of RtlVirtualUnwind: undoes a prologue as far as it ran, or runs the rest of an epilogue. Sources:
// "x64 exception handling", "Unwind procedure"; where that text is silent, .NET's copy of Windows' unwinder
// (coreclr/unwinder/amd64), named below as Windows. No allocation, lock or system call of its own; signal-safe if
// `memory` is.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>

#include "base/target_memory.h"
#include "base/x86_64_call.h"
#include "formats/winx64/epilogue.h"
#include "formats/winx64/known_unwind.h"
#include "formats/winx64/read.h"
#include "formats/winx64/registers.h"
#include "formats/winx64/steps_v3.h"
#include "formats/winx64/unwound.h"
#include "windlass/registers.h"

namespace windlass::winx64 {

// An image as the unwinder needs it. `find` finds a function by RVA. `bytes` gives unwind information and code: at most
// `wanted` bytes, or fewer where the image ends. The bytes are valid until the unwind is over.
template <typename I>
concept UnwindImage = requires(const I& image, std::uint32_t rva, RuntimeFunction& function) {
  { image.find(rva, function) } -> std::same_as<bool>;
  { image.bytes(rva, rva) } -> std::same_as<ByteView>;
};
static_assert(UnwindImage<Functions>);

// ---- what unwinding and lowering share ----------------------------------------------------------------------------

// An indirect entry stands for another one; Windows follows one level.
template <UnwindImage I>
Expected<RuntimeFunction> direct(const I& image, const RuntimeFunction& function) {
  if (!function.indirect()) return function;
  const auto other = image.bytes(function.info & ~1U, 12).template at<RuntimeFunction>(0);
  if (!other) return fail(ErrorCode::kOutOfRange, "indirect function entry is outside the image: RVA", function.info);
  return *other;
}

// No information is longer.
inline constexpr std::uint32_t kLongestInfo = 4 + 2 * 256 + 12;

template <UnwindImage I>
Expected<UnwindInfo> info_of(const I& image, const RuntimeFunction& function) {
  return parse_unwind_info(image.bytes(function.info, kLongestInfo), function.info);
}
template <UnwindImage I>
bool info_of(const I& image, const RuntimeFunction& function, UnwindInfo& to) {
  return parse_unwind_info(image.bytes(function.info, kLongestInfo), function.info, to);
}

// The entry at the end of a chain. Nothing: it cannot be read.
template <UnwindImage I>
std::optional<RuntimeFunction> primary(const I& image, RuntimeFunction function) {
  for (unsigned depth = 0; depth <= kMaxChain; ++depth) {
    const auto here = direct(image, function);
    UnwindInfo info;
    if (!here || !info_of(image, *here, info)) return std::nullopt;
    if (!info.chained) return *here;
    function = *info.chained;
  }
  return std::nullopt;
}

// Codes without a prologue: whoever jumps there has made the frame.
template <UnwindImage I>
bool has_frame_on_entry(const I& image, const RuntimeFunction& function) {
  const auto here = direct(image, function);
  UnwindInfo info;
  return here && info_of(image, *here, info) && info.version == 1 && info.prolog_size == 0 && info.slot_count != 0 &&
         !info.chained;
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

// `match` at `rva` is `nop; ret`: is the nop one behind a call, as compilers put there for unwinders that look return
// addresses up as they are? Then the frame is in place.
template <UnwindImage I>
bool is_behind_call(const I& image, const EpilogueMatch& match, std::uint32_t rva) {
  if (!match.nop_first || rva < x86_64::kLongestCall) return false;
  const ByteView code = image.bytes(rva - x86_64::kLongestCall, x86_64::kLongestCall);
  std::uint8_t before[x86_64::kLongestCall];
  if (code.size() != sizeof before || ends_with_release(code)) return false;
  std::memcpy(before, code.data(), sizeof before);
  return x86_64::ends_with_call(before);
}

// The effect of a jump at the end of a possible epilogue.
enum class JumpKind : std::uint8_t {
  kStays,          // in its function
  kLeaves,         // a tail call
  kLeavesIfFreed,  // a tail call if it stands behind what frees a frame
};

// Windows takes two jumps for tail calls: to another function, and to the begin of the own one. But V8's builtins and
// GCC's .cold parts jump into the middle of other entries with their frames in place, and GCC's functions jump so to
// their .cold parts. Windows unwinds those wrongly. Here such a jump is a tail call only behind an instruction that
// frees a frame.
template <UnwindImage I>
JumpKind jump_kind(const I& image, const RuntimeFunction& function, const UnwindInfo& info, std::int64_t target_rva) {
  if (target_rva < 0 || target_rva >> 32 != 0) return JumpKind::kLeaves;
  const auto target = static_cast<std::uint32_t>(target_rva);
  if (target >= function.begin && target < function.end)
    return target == function.begin && !info.has(kChaininfo) ? JumpKind::kLeaves : JumpKind::kStays;
  RuntimeFunction other;
  if (!image.find(target, other)) return JumpKind::kLeaves;
  const auto its = primary(image, other);
  const std::optional<RuntimeFunction> mine = info.chained ? primary(image, function) : function;
  if (mine && its && mine->begin == its->begin) return target == mine->begin ? JumpKind::kLeaves : JumpKind::kStays;
  return target == other.begin && !has_frame_on_entry(image, other) ? JumpKind::kLeaves : JumpKind::kLeavesIfFreed;
}

// `match`, at `rva`, ends with a jump of this kind: does it leave the function?
template <UnwindImage I>
bool jump_leaves(const I& image, const RuntimeFunction& function, JumpKind kind, std::uint32_t rva,
                 const EpilogueMatch& match) {
  if (kind != JumpKind::kLeavesIfFreed) return kind == JumpKind::kLeaves;
  return match.pop_count != 0 || match.release != EpilogueMatch::Release::kNone ||
         frees_frame_before(image, function, rva);
}
template <UnwindImage I>
bool jump_leaves(const I& image, const RuntimeFunction& function, const UnwindInfo& info, std::uint32_t rva,
                 const EpilogueMatch& match) {
  return jump_leaves(image, function, jump_kind(image, function, info, rva + match.target), rva, match);
}

// The slot of the first push; slot_count: there is none.
inline unsigned first_push(const UnwindInfo& info) {
  UnwindCode code;
  for (unsigned index = 0; index < info.slot_count; index += code.slots) {
    if (!code_at(info, index, code)) break;
    if (code.operation == Operation::kPushNonvol || code.operation == Operation::kPushMachframe) return index;
  }
  return info.slot_count;
}

// One unwind. See virtual_unwind. Its state is small, and the caller's registers are written once, at the end.
template <TargetMemory M, UnwindImage I>
class Unwinder {
 public:
  Unwinder(const I& image, std::uint64_t base, const M& memory, const Registers& frame, SavedAddresses* saved)
      : image_(image), base_(base), memory_(memory), frame_(frame), saved_(saved) {
    for (unsigned i = 0; i < kPreservedCount; ++i)
      value_[kPreservedNumbers[i]] = as_word(frame.stored(kPreservedSlots[i]));
  }

  Expected<void> run(Unwound& to) {
    if (!unwind()) return Failure(error_);
    commit(to);
    return {};
  }

 private:
  bool unwind() {
    if (!frame_.has_sp()) return lost(kRsp);
    rsp_ = establisher_ = frame_.sp();
    const CodeAddress pc = frame_.pc();
    const std::uint64_t rva = pc.lookup() - base_;
    RuntimeFunction found;
    if (rva >> 32 != 0 || !image_.find(static_cast<std::uint32_t>(rva), found)) {
      position_ = Position::kLeaf;
      return pop_return(0);
    }
    pc_rva_ = static_cast<std::uint32_t>(pc.value() - base_);
    end_ = found.end;
    if (!found.indirect()) [[likely]]
      return unwind(found);
    const auto function = direct(image_, found);
    return function ? unwind(*function) : fail_with(function.error());
  }

  bool unwind(const RuntimeFunction& function) {
    UnwindInfo info;
    if (!read_info(function, info)) return false;
    if (info.version == 3) return unwind_v3(function, info);
    if (info.frame_register != 0 && !set_establisher(function, info)) return false;
    // Control is never inside an epilogue where a call returns to. What looks like one there is the code behind a call
    // that does not return, or another function's; Windows, which cannot know, unwinds by it.
    if (!frame_.pc().is_return_address()) {
      bool done = false;
      if (!(info.version == 1 ? run_epilogue(function, info, done) : undo_epilogue(function, info, done))) return false;
      if (done) {
        position_ = Position::kEpilogue;
        return true;
      }
    }
    return undo_prologues(function, info);
  }

  // The frame register counts from where its SET_FPREG ran; also in fragments, whose parents ran it.
  bool set_establisher(const RuntimeFunction& function, const UnwindInfo& info) {
    const std::uint32_t offset = pc_rva_ - function.begin;
    std::uint32_t displacement = info.frame_offset * 16U;
    bool set = offset >= info.prolog_size || info.has(kChaininfo);
    UnwindCode code;
    for (unsigned index = 0; index < info.slot_count && (!set || info.frame_offset == 15); index += code.slots) {
      if (!code_at(info, index, code)) return bad_code(info, index);
      if (code.operation == Operation::kSetFpreg || code.operation == Operation::kSetFpregLarge) {
        set = set || offset >= code.offset;
        displacement = code.value;
        break;
      }
    }
    if (!set) return true;
    if (!has(info.frame_register)) return lost(info.frame_register);
    establisher_ = get(info.frame_register) - displacement;
    return true;
  }

  // ---- epilogues ----

  // Version 1 is known by the instructions at pc. Windows does this before anything else, even in the prologue. Wine
  // does it only if there are unwind codes ("since Windows 10 1809"). Without codes both ways agree, unless a release
  // or a pop is there; in that case the code is right.
  bool run_epilogue(const RuntimeFunction& function, const UnwindInfo& info, bool& done) {
    const ByteView code = image_.bytes(pc_rva_, kEpilogueWindow);
    if (code.size() > 1 && !may_begin_epilogue(code.u8()[0], code.u8()[1])) return true;
    return run_epilogue(function, info, code, done);
  }
  bool run_epilogue(const RuntimeFunction& function, const UnwindInfo& info, const ByteView& code, bool& done) {
    EpilogueMatch match;
    if (!match_epilogue(code, info.frame_register, end_ - pc_rva_, match)) return true;
    if (match.exit == EpilogueMatch::Exit::kJump && !jump_leaves(image_, function, info, pc_rva_, match)) return true;
    if (is_behind_call(image_, match, pc_rva_)) return true;
    done = true;
    if (match.release == EpilogueMatch::Release::kAdd) {
      rsp_ += static_cast<std::uint64_t>(static_cast<std::int64_t>(match.displacement));
    } else if (match.release == EpilogueMatch::Release::kLea) {
      if (!has(match.base)) return lost(match.base);
      rsp_ = get(match.base) + static_cast<std::uint64_t>(static_cast<std::int64_t>(match.displacement));
    }
    for (unsigned i = 0; i < match.pop_count; ++i) {
      if (!pop(match.pops[i])) return false;
    }
    // Windows adds 8 whatever n is; the processor and Wine add 8 + n, which is where the caller's stack then is.
    return pop_return(match.return_pops);
  }

  // Version 2: by the epilogues the codes describe.
  bool undo_epilogue(const RuntimeFunction& function, const UnwindInfo& info, bool& done) {
    std::uint32_t into = 0;
    each_epilog(info, function.end, [&](const Epilog& epilog) {
      if (done || pc_rva_ - epilog.begin >= epilog.size) return;
      done = true;
      into = pc_rva_ - epilog.begin;
    });
    if (!done) return true;
    UnwindInfo at = info;
    unsigned first = first_push(at);
    for (unsigned depth = 0; first == at.slot_count && at.chained; ++depth) {
      if (depth == kMaxChain) return chain_too_long(info.rva);
      const RuntimeFunction parent = *at.chained;
      at = {};
      if (!read_info(parent, at)) return false;
      if (at.version == 3) return mixed_chain(info.rva);
      first = first_push(at);
    }
    return undo_pushes(at, first, into);
  }

  // The pops that have not run yet, then the return. A pop of r8-r15 has 2 bytes. An ALLOC_SMALL of 8 behind the pushes
  // stands for pushfq, undone by a pop of one byte.
  bool undo_pushes(const UnwindInfo& info, unsigned index, std::uint32_t into) {
    std::uint32_t offset = 0;
    UnwindCode code;
    for (; index < info.slot_count; ++index) {
      if (!code_at(info, index, code)) return bad_code(info, index);
      if (code.operation == Operation::kPushMachframe) return machine_frame(code.info != 0);
      const bool flags = code.operation == Operation::kAllocSmall && code.info == 0;
      if (code.operation != Operation::kPushNonvol && !flags) break;
      if (offset >= into) {
        if (flags)
          rsp_ += 8;
        else if (!pop(code.info))
          return false;
      }
      offset += code.operation == Operation::kPushNonvol && code.info >= 8 ? 2 : 1;
    }
    return pop_return(0);
  }

  // ---- prologues ----

  bool undo_prologues(const RuntimeFunction& function, const UnwindInfo& info) {
    std::uint32_t offset = pc_rva_ - function.begin;  // huge in fragments before their parent: all ran
    if (!undo_codes(info, offset)) return false;
    if (!info.chained) return leave(info, offset < info.prolog_size);
    RuntimeFunction next = *info.chained;
    for (unsigned depth = 0;; ++depth) {
      if (depth == kMaxChain) return chain_too_long(info.rva);
      UnwindInfo parent;
      if (!read_info(next, parent)) return false;
      if (parent.version == 3) return mixed_chain(info.rva);
      offset = pc_rva_ - next.begin;
      if (!undo_codes(parent, offset)) return false;
      if (!parent.chained) return leave(parent, offset < parent.prolog_size);
      next = *parent.chained;
    }
  }

  // ---- version 3 ----

  bool unwind_v3(const RuntimeFunction& function, const UnwindInfo& info) {
    const auto read = [this](const RuntimeFunction& other) { return info_of(image_, other); };
    bool done = true;
    const auto at = StepsV3<decltype(read)>(read, function, info).each(pc_rva_, [&](const UnwindCode& code) {
      done = done && undo_v3(info, code);
    });
    if (!at) return fail_with(at.error());
    if (!done) return false;
    if (!at->in_epilogue) return leave(at->last, at->in_prologue);
    position_ = Position::kEpilogue;
    return machine_frame_ || pop_return(0);
  }

  bool undo_v3(const UnwindInfo& info, const UnwindCode& code) {
    switch (code.operation) {
      case Operation::kPushNonvol:
        if (code.info < 16) return pop(code.info);
        rsp_ += 8;  // a register of APX, which is not held
        return true;
      case Operation::kSaveNonvol:
      case Operation::kSaveNonvolFar: return code.info >= 16 || load(code.info, rsp_ + code.value);
      case Operation::kSaveXmm128:
      case Operation::kSaveXmm128Far:
        if (saved_ != nullptr) saved_->xmm[code.info] = rsp_ + code.value;
        return true;
      case Operation::kSetFpreg:
        if (!has(code.info)) return lost(code.info);
        rsp_ = establisher_ = get(code.info) - code.value;
        return true;
      case Operation::kPushCanonicalFrame:
        // ml64's .PUSHFRAME has these two; the text leaves further types to the system.
        if (code.info <= 1) return machine_frame(code.info != 0);
        return fail_with(
            {ErrorCode::kUnsupported, "canonical frame of a type that is not known: RVA", info.rva, code.info});
      default: rsp_ += size_of(code); return true;
    }
  }

  // Windows asks the last entry of the chain for the handler, also for fragments.
  bool leave(const UnwindInfo& info, bool in_prologue) {
    position_ = in_prologue ? Position::kPrologue : Position::kBody;
    if (position_ == Position::kBody && info.handler != 0) {
      handler_ = info.handler;
      handler_data_ = info.handler_data;
      handler_flags_ = info.flags & (kEhandler | kUhandler);
    }
    return machine_frame_ || pop_return(0);
  }

  bool undo_codes(const UnwindInfo& info, std::uint32_t offset) {
    UnwindCode code;
    for (unsigned index = 0; index < info.slot_count; index += code.slots) {
      if (!undo_short_codes(info, index, offset)) return false;
      if (index == info.slot_count) break;
      if (!code_at(info, index, code)) return bad_code(info, index);
      if (offset >= code.offset && !undo(info, code)) return false;
    }
    return true;
  }

  // Nearly all codes are of one slot and have nothing to look up: undoes those from `index` on, up to another one.
  bool undo_short_codes(const UnwindInfo& info, unsigned& index, std::uint32_t offset) {
    for (; index < info.slot_count; ++index) {
      const std::uint32_t slot = slot_at(info.codes, index);
      const auto operation = static_cast<Operation>(slot >> 8 & 15);
      if (operation != Operation::kPushNonvol && operation != Operation::kAllocSmall) break;
      if (offset < (slot & 255)) continue;
      if (operation == Operation::kAllocSmall)
        rsp_ += 8 * (slot >> 12) + 8;
      else if (!pop(slot >> 12))
        return false;
    }
    return true;
  }

  bool undo(const UnwindInfo& info, const UnwindCode& code) {
    switch (code.operation) {
      case Operation::kAllocLarge: rsp_ += code.value; return true;
      case Operation::kSetFpreg:
      case Operation::kSetFpregLarge:
        if (!has(info.frame_register)) return lost(info.frame_register);
        rsp_ = get(info.frame_register) - code.value;
        return true;
      case Operation::kSaveNonvol:
      case Operation::kSaveNonvolFar: return load(code.info, establisher_ + code.value);
      case Operation::kSaveXmm128:
      case Operation::kSaveXmm128Far:
        if (saved_ != nullptr) saved_->xmm[code.info] = establisher_ + code.value;
        return true;
      case Operation::kEpilog: return true;
      case Operation::kPushMachframe: return machine_frame(code.info != 0);
      default:
        return fail_with({ErrorCode::kUnsupported, "unwind operation that nothing emits: RVA", info.rva,
                          static_cast<std::uint64_t>(code.operation)});
    }
  }

  // ---- the state: registers by their numbers in instructions ----

  // What has been restored so far, else the frame's.
  [[nodiscard]] bool has(unsigned number) const {
    return (restored_ >> number & 1) != 0 || frame_.has_slot(dwarf_number(number));
  }
  [[nodiscard]] std::uint64_t get(unsigned number) const {
    if (number == kRsp) return rsp_;
    return (restored_ >> number & 1) != 0 ? value_[number] : frame_.get_slot(dwarf_number(number));
  }

  // `to.caller` may be the frame itself.
  void commit(Unwound& to) {
    const std::uint64_t known = (frame_.known_slots() & kPreservedKnown) | dwarf_numbers(restored_);
    const auto value = [this](unsigned i) { return as_word(value_[kPreservedNumbers[i]]); };
    to.caller.set_slots(kPreservedSlots, value, std::make_integer_sequence<unsigned, kPreservedCount>());
    for (std::uint32_t rest = restored_ & ~kPreservedMask; rest != 0; rest &= rest - 1) {
      const auto number = static_cast<unsigned>(std::countr_zero(rest));
      to.caller.set_slot(dwarf_number(number), value_[number]);
    }
    to.caller.keep_slots(known);
    to.caller.set_sp(rsp_);
    to.caller.set_pc(machine_frame_ ? CodeAddress::instruction(rip_) : CodeAddress::return_address(rip_));
    to.establisher = establisher_;
    to.position = position_;
    to.machine_frame = machine_frame_;
    to.handler = handler_;
    to.handler_data = handler_data_;
    to.handler_flags = handler_flags_;
  }

  bool read(std::uint64_t address, std::uint64_t& value) {
    return memory_.read(address, &value, sizeof value) || unreadable(address);
  }

  bool load(unsigned number, std::uint64_t address) {
    if (number == kRsp) return read(address, rsp_);
    if (!read(address, value_[number])) return false;
    restored_ |= 1U << number;
    if (saved_ != nullptr) saved_->integer[number] = address;
    return true;
  }

  bool pop(unsigned number) {
    const std::uint64_t at = rsp_;
    rsp_ += 8;
    return load(number, at);
  }

  bool pop_return(std::uint16_t arguments) {
    if (!read(rsp_, rip_)) return false;
    if (saved_ != nullptr) saved_->return_address = rsp_;
    rsp_ += 8ULL + arguments;
    return true;
  }

  // What an interrupt pushed: [error code] rip cs rflags rsp ss.
  bool machine_frame(bool error_code) {
    const std::uint64_t at = rsp_ + (error_code ? 8 : 0);
    if (!read(at, rip_) || !read(at + 24, rsp_)) return false;
    if (saved_ != nullptr) saved_->return_address = at;
    machine_frame_ = true;
    return true;
  }

  bool read_info(const RuntimeFunction& function, UnwindInfo& info) {
    return info_of(image_, function, info) || fail_with(info_of(image_, function).error());
  }

  bool fail_with(const Error& error) {
    error_ = error;
    return false;
  }
  bool unreadable(std::uint64_t address) {
    return fail_with({ErrorCode::kUnreadable, "stack is not readable", address, sizeof(std::uint64_t)});
  }
  bool lost(unsigned number) {
    return fail_with(
        {ErrorCode::kNotFound, "register is not known in this frame", frame_.pc().value(), dwarf_number(number)});
  }
  bool bad_code(const UnwindInfo& info, unsigned index) { return fail_with(code_at(info, index).error()); }
  bool mixed_chain(std::uint32_t rva) {
    return fail_with({ErrorCode::kUnsupported, "version 3 is chained to another version: RVA", rva, 0});
  }
  bool chain_too_long(std::uint32_t rva) {
    return fail_with({ErrorCode::kLimit, "chain of unwind information is longer than 32: RVA", rva, 0});
  }

  const I& image_;
  const std::uint64_t base_;
  const M& memory_;
  const Registers& frame_;
  SavedAddresses* const saved_;
  std::uint64_t value_[16];  // of `restored_`, and of the preserved registers; by instruction number
  std::uint64_t rsp_ = 0;
  std::uint64_t rip_ = 0;
  std::uint32_t restored_ = 0;
  std::uint32_t pc_rva_ = 0;
  std::uint32_t end_ = 0;  // of the entry that contains pc
  Position position_ = Position::kBody;
  bool machine_frame_ = false;
  std::uint8_t handler_flags_ = 0;
  std::uint32_t handler_ = 0;
  std::uint32_t handler_data_ = 0;
  std::uint64_t establisher_ = 0;
  Error error_;
};

// As virtual_unwind() without anything kept.
template <TargetMemory M, UnwindImage I>
[[gnu::noinline]] Expected<void> unwind_by_codes(const I& image, std::uint64_t base, const M& memory,
                                                 const Registers& frame, Unwound& to, SavedAddresses* saved = nullptr) {
  return Unwinder<M, I>(image, base, memory, frame, saved).run(to);
}

// Finds out what unwinding from the pc of `key` comes to, and keeps it.
template <UnwindImage I>
[[gnu::noinline]] KnownUnwind learn_unwind(const I& image, std::uint64_t base, CodeAddress pc, std::uint64_t key) {
  Unwound unwound;
  SavedAddresses saved;
  unsigned reads = 0;
  const bool done = unwind_by_codes(image, base, TaggedMemory{&reads}, tagged_frame(pc), unwound, &saved).has_value();
  const KnownUnwind known(key, done, unwound, saved, reads);
  UnwindCache::keep(known);
  return known;
}

// The caller of `frame`, whose pc lies in the image loaded at `base`. Code that no entry covers is a leaf. `saved` may
// be null. An error changes nothing but `saved`. Bounded by 33 records of 255 slots, twice. Errors:
// - kUnreadable (stack address).
// - kNotFound: a register that is needed is not known.
// - Errors of reading the unwind information (RVA).
//
// If the image has an identity, the result for a pc is kept once the pc has been met again.
template <TargetMemory M, UnwindImage I>
Expected<void> virtual_unwind(const I& image, std::uint64_t base, const M& memory, const Registers& frame, Unwound& to,
                              SavedAddresses* saved = nullptr) {
  if constexpr (requires { image.identity(); }) {
    constexpr std::uint64_t kNeeded = kPreservedKnown | 1U << dwarf_number(kRsp);
    const CodeAddress pc = frame.pc();
    const std::uint64_t rva = pc.lookup() - base;
    if (rva >> 32 == 0 && (frame.known_slots() & kNeeded) == kNeeded && image.identity() != 0) [[likely]] {
      const std::uint64_t key =
          UnwindCache::key_of(image.identity(), static_cast<std::uint32_t>(rva), pc.is_return_address());
      KnownUnwind known = UnwindCache::find(key);
      if (known.key() != key && UnwindCache::is_to_be_kept(key)) known = learn_unwind(image, base, pc, key);
      if (known.key() == key && !known.by_codes() && known.run(memory, frame, to, saved)) return {};
    }
  }
  return unwind_by_codes(image, base, memory, frame, to, saved);
}

}  // namespace windlass::winx64
