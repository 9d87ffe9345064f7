// The stretches of a function's code with their frames, and the Prologue that says the same.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "windlass/prologue.h"

namespace windlass::flow {

struct FrameStretch {
  static constexpr std::int64_t kUnknownDepth = -1;

  FrameRow row;        // begin and end are offsets into the code
  std::int64_t depth;  // CFA - sp, where known
  std::uint32_t
      made_at;  // begin of the instruction that leads from the stretch in front of it to this one; else `begin`
  bool sp_from_frame_pointer;  // that one has made sp of the frame pointer
  bool straight;               // the code from the function's begin to there neither calls nor branches
};

struct FoundPrologue {
  std::optional<Prologue> prologue = {};
  const char* why_not = nullptr;
  std::uint32_t where = 0;
};

// `stretches` ascend. Between them nothing is known of the code, or need be. Of the possible ones that with the fewest
// parts, and of these the shortest prologue that has all of the straight code at the function's begin. Its rows are
// those given, registers apart that are Undefined there. Linear in the stretches, times the instructions of the
// prologue.
[[nodiscard]] FoundPrologue prologue_of(const std::vector<FrameStretch>& stretches, Architecture architecture,
                                        std::uint32_t code_size);

// Everything the same but where they are. Of expressions only those at the same place.
[[nodiscard]] bool same_rules(const FrameRow& a, const FrameRow& b);

}  // namespace windlass::flow
