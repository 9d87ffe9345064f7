// Rows of functions with information of version 3.
#pragma once

#include <algorithm>

#include "formats/winx64/exec.h"
#include "formats/winx64/row_writer.h"
#include "formats/winx64/steps_v3.h"

namespace windlass::winx64 {

template <UnwindImage I>
class LoweringV3 {
 public:
  LoweringV3(const I& image, const RuntimeFunction& entry, const RuntimeFunction& function, const UnwindInfo& info,
             RowSink row, ProblemSink problem)
      : entry_(entry),
        function_{entry.begin, entry.end, function.info},
        info_(info),
        read_{&image},
        steps_(read_, function_, info_),
        writer_(row),
        problem_(problem) {}

  void run_at(std::uint32_t rva) {
    Row row;
    if (row_of(rva, row)) writer_.add(rva, rva + 1, row);
  }

  void run() {
    unsigned changes = 0;
    for (std::uint32_t at = entry_.begin; at < entry_.end; ++changes) {
      if (changes == kMaxChanges)
        return problem_({ErrorCode::kLimit, "more than 256 unwind operations: RVA", info_.rva, 0});
      const std::uint32_t next = next_change(at);
      Row row;
      if (row_of(at, row)) writer_.add(at, next, row);
      at = next;
    }
  }

 private:
  struct Read {
    const I* image;
    Expected<UnwindInfo> operator()(const RuntimeFunction& function) const { return info_of(*image, function); }
  };

  // The first RVA above `at` where something else may have run. Quadratic in the operations, of which there are few.
  std::uint32_t next_change(std::uint32_t at) const {
    std::uint32_t next = entry_.end;
    const auto change = [&](std::uint32_t rva) {
      if (rva > at) next = std::min(next, rva);
    };
    (void)each_link_v3(
        read_, function_, info_,
        [&](const RuntimeFunction& of, const UnwindInfo& info, const PayloadV3& payload) -> Expected<bool> {
          change(of.begin);
          return each_prologue_code_v3(info, payload,
                                       [&](const UnwindCode& code) { change(of.begin + code.offset + 1); })
              .has_value();
        });
    const auto payload = read_payload_v3(info_);
    if (!payload) return next;
    for (unsigned i = 0; i < payload->epilog_count; ++i) {
      const EpilogV3& epilog = payload->epilogs[i];
      const std::uint32_t begin = begin_of(epilog, function_);
      change(begin);
      change(begin + epilog.last_instruction + 1);
      (void)each_descriptor(payload->pool, epilog.first_op, epilog.operation_count, epilog.ip_offsets, epilog.large,
                            [&](const UnwindCode& code) { change(begin + code.offset + 1); });
    }
    return next;
  }

  bool row_of(std::uint32_t rva, Row& row) const {
    row.start();
    bool known = true;
    const auto done = steps_.each(rva, [&](const UnwindCode& code) { known = known && undo(code, row); });
    if (!done) {
      problem_(done.error());
      return false;
    }
    if (!known) {
      problem_({ErrorCode::kUnsupported, "no row can say what the codes do at RVA", rva, info_.rva});
      return false;
    }
    if (!row.machine_frame) row.finish(0);
    if (row.too_large) problem_({ErrorCode::kLimit, "no row for a frame of 2 GiB or more at RVA", rva, 0});
    return !row.too_large;
  }

  static bool undo(const UnwindCode& code, Row& row) {
    if (row.machine_frame) return false;  // it is what was on the stack first
    switch (code.operation) {
      case Operation::kPushNonvol:
        if (code.info == kRsp) return false;
        if (code.info < 16) row.save(dwarf_number(code.info), row.base, row.offset);  // rows have none of APX's
        row.offset += 8;
        return true;
      case Operation::kSaveNonvol:
      case Operation::kSaveNonvolFar:
        if (code.info == kRsp) return false;
        if (code.info < 16) row.save(dwarf_number(code.info), row.base, row.offset + code.value);
        return true;
      case Operation::kSaveXmm128:
      case Operation::kSaveXmm128Far: row.save(kXmm0 + code.info, row.base, row.offset + code.value); return true;
      case Operation::kSetFpreg: return row.take_base(code.info, code.value);
      case Operation::kPushCanonicalFrame:
        if (code.info > 1) return false;
        row.enter_machine_frame(code.info != 0);
        return true;
      default: row.offset += static_cast<std::int64_t>(size_of(code)); return true;
    }
  }

  static constexpr unsigned kMaxChanges = 256;

  const RuntimeFunction entry_;
  const RuntimeFunction function_;
  const UnwindInfo info_;
  const Read read_;
  const StepsV3<Read> steps_;
  RowWriter writer_;
  ProblemSink problem_;
};

}  // namespace windlass::winx64
