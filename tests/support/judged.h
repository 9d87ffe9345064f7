// What a StepJudge found, as a test expects it.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>

#include "support/step_judge.h"

namespace windlass::test {

// No caller was wrong, at more than so many instructions, of which more than so many different ones.
inline void expect_right(const StepJudge& judge, std::size_t judged, std::size_t different) {
  std::printf("%zu instructions judged, %zu different ones: %zu wrong\n", judge.judged, judge.instructions.size(),
              judge.wrong);
  EXPECT_EQ(judge.wrong, 0U) << judge.first_wrong;
  EXPECT_GT(judge.judged, judged);
  EXPECT_GT(judge.instructions.size(), different);
}

}  // namespace windlass::test
