// What a StepJudge found, as a test expects it.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>

#include "support/step_judge.h"

namespace windlass::test {

// No caller was wrong, at more than so many instructions, of which more than so many different ones. Where a walk may
// refuse, it did so at one instruction of a thousand at most.
inline void expect_right(const StepJudge& judge, std::size_t judged, std::size_t different) {
  std::printf("%zu instructions judged, %zu different ones: %zu wrong, %zu refused\n", judge.judged,
              judge.instructions.size(), judge.wrong, judge.refused);
  EXPECT_EQ(judge.wrong, 0U) << judge.first_wrong;
  EXPECT_LE(judge.refused, judge.judged / 1000);
  EXPECT_GT(judge.judged, judged);
  EXPECT_GT(judge.instructions.size(), different);
}

}  // namespace windlass::test
