// What version 3 leaves to be undone at an address, in the order of undoing: for unwinding and for rows.
//
// The preview does not say how to undo a save of a function that moves rsp in its body. Its displacement counts from
// rsp as it was behind the save. So where a frame pointer is set, rsp is computed from it first, as it was at the
// prologue's end, and all counts from there. Without such moves this is what the text says, operation by operation.
#pragma once

#include <cstdint>
#include <optional>

#include "formats/winx64/read.h"

namespace windlass::winx64 {

// The RVA of an epilogue's first instruction.
[[nodiscard]] inline std::uint32_t begin_of(const EpilogV3& epilog, const RuntimeFunction& function) {
  return static_cast<std::uint32_t>((epilog.offset < 0 ? function.end : function.begin) + epilog.offset);
}

// Offsets are those of the instructions' begins. An RVA before the function is in a fragment in front: all has run. No
// instruction makes a canonical frame: it is there from its offset on.
[[nodiscard]] inline bool has_run(const UnwindCode& code, const RuntimeFunction& function, std::uint32_t rva) {
  const std::uint32_t offset = rva - function.begin;
  return offset > code.offset || (offset == code.offset && code.operation == Operation::kPushCanonicalFrame);
}

// Bytes by which an operation has moved rsp.
[[nodiscard]] inline std::uint64_t size_of(const UnwindCode& code) {
  switch (code.operation) {
    case Operation::kPushNonvol: return 8;
    case Operation::kPush2:
    case Operation::kPushConsecutive2: return 16;
    case Operation::kAllocSmall:
    case Operation::kAllocLarge:
    case Operation::kAllocHuge: return code.value;
    default: return 0;
  }
}

// Calls link(function, info, payload) for an entry and those that it is chained to. `read` reads the information of an
// entry. Stops where the link returns false.
template <typename Read, typename Link>
Expected<void> each_link_v3(const Read& read, RuntimeFunction function, UnwindInfo info, Link&& link) {
  for (unsigned depth = 0; depth <= kMaxChain; ++depth) {
    if (info.version != 3)
      return fail(ErrorCode::kUnsupported, "version 3 is chained to another version: RVA", function.info);
    const auto payload = read_payload_v3(info);
    if (!payload) return Failure(payload.error());
    const Expected<bool> more = link(function, info, *payload);
    if (!more) return Failure(more.error());
    if (!*more || !info.chained) return {};
    function = *info.chained;
    const Expected<UnwindInfo> next = read(function);
    if (!next) return Failure(next.error());
    info = *next;
  }
  return fail(ErrorCode::kLimit, "chain of unwind information is longer than 32: RVA", info.rva);
}

template <typename Callback>
Expected<void> each_prologue_code_v3(const UnwindInfo& info, const PayloadV3& payload, Callback&& callback) {
  return each_descriptor(payload.pool, 0, info.operation_count, payload.ip_offsets, info.has(kLarge), callback);
}

// Where the address is, and the information that has the handler.
struct PositionV3 {
  bool in_epilogue = false;
  bool in_prologue = false;
  UnwindInfo last = {};
};

template <typename Read>
class StepsV3 {
 public:
  StepsV3(const Read& read, const RuntimeFunction& function, const UnwindInfo& info)
      : read_(read), function_(function), info_(info) {}

  // Calls step(code) for pushes of one register, allocations, saves (from rsp as it then is), SET_FPREG (rsp = register
  // - value) and PUSH_CANONICAL_FRAME. What remains is a return.
  template <typename Step>
  Expected<PositionV3> each(std::uint32_t rva, Step&& step) const {
    const auto payload = read_payload_v3(info_);
    if (!payload) return Failure(payload.error());
    PositionV3 position{.last = info_};
    for (unsigned i = 0; i < payload->epilog_count; ++i) {
      const EpilogV3& epilog = payload->epilogs[i];
      const std::uint32_t into = rva - begin_of(epilog, function_);
      if (into > epilog.last_instruction) continue;
      position.in_epilogue = true;
      const auto done = each_descriptor(payload->pool, epilog.first_op, epilog.operation_count, epilog.ip_offsets,
                                        epilog.large, [&](const UnwindCode& code) {
                                          if (into <= code.offset) single(code, step);
                                        });
      if (!done) return Failure(done.error());
      if (!epilog.parent_transfer) return position;
      if (!info_.chained)
        return fail(ErrorCode::kMalformed, "epilogue goes on in a parent that there is not: RVA", info_.rva);
      const RuntimeFunction parent = *info_.chained;
      const Expected<UnwindInfo> its = read_(parent);
      if (!its) return Failure(its.error());
      if (const auto rest = prologues(parent, *its, parent.begin - 1, step, position); !rest)
        return Failure(rest.error());
      return position;
    }
    if (const auto done = prologues(function_, info_, rva, step, position); !done) return Failure(done.error());
    return position;
  }

 private:
  // A push of two registers leaves the second one lower.
  template <typename Step>
  static void single(const UnwindCode& code, Step& step) {
    if (code.operation != Operation::kPush2 && code.operation != Operation::kPushConsecutive2) return step(code);
    UnwindCode push = code;
    push.operation = Operation::kPushNonvol;
    push.info = code.second;
    step(push);
    push.info = code.info;
    step(push);
  }

  template <typename Step>
  Expected<void> prologues(const RuntimeFunction& function, const UnwindInfo& info, std::uint32_t rva, Step& step,
                           PositionV3& position) const {
    const auto pointer = frame_pointer(function, info, rva);
    if (!pointer) return Failure(pointer.error());
    if (*pointer) step(**pointer);
    return each_link_v3(
        read_, function, info,
        [&](const RuntimeFunction& at, const UnwindInfo& its, const PayloadV3& payload) -> Expected<bool> {
          const auto done = each_prologue_code_v3(its, payload, [&](const UnwindCode& code) {
            if (has_run(code, at, rva) && code.operation != Operation::kSetFpreg) single(code, step);
          });
          if (!done) return Failure(done.error());
          position.last = its;
          position.in_prologue = rva - at.begin < its.prolog_size;
          return true;
        });
  }

  // SET_FPREG as far as it has run, with a value that leads to where rsp was behind the operations that followed it.
  Expected<std::optional<UnwindCode>> frame_pointer(const RuntimeFunction& function, const UnwindInfo& info,
                                                    std::uint32_t rva) const {
    std::optional<UnwindCode> found;
    std::uint64_t behind = 0;
    const auto done =
        each_link_v3(read_, function, info,
                     [&](const RuntimeFunction& at, const UnwindInfo& its, const PayloadV3& payload) -> Expected<bool> {
                       const auto read = each_prologue_code_v3(its, payload, [&](const UnwindCode& code) {
                         if (found || !has_run(code, at, rva)) return;
                         if (code.operation == Operation::kSetFpreg) found = code;
                         behind += size_of(code);
                       });
                       if (!read) return Failure(read.error());
                       return !found.has_value();
                     });
    if (!done) return Failure(done.error());
    if (found && behind > 0xffff'ffff - found->value)
      return fail(ErrorCode::kLimit, "frame of 4 GiB or more: RVA", info.rva);
    if (found) found->value += static_cast<std::uint32_t>(behind);
    return found;
  }

  const Read& read_;
  const RuntimeFunction function_;
  const UnwindInfo& info_;
};

}  // namespace windlass::winx64
