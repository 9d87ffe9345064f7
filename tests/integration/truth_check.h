// Holds the stacks of a profile of tests/workloads/truth.cpp against what that program can possibly do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profile/profile.h"

namespace windlass::test {

struct TruthVerdict {
  std::uint64_t samples = 0;    // samples of the program's own code, from its entry point on
  std::uint64_t complete = 0;   // of these, whole by the profiler's own word
  std::uint64_t in_levels = 0;  // complete ones that reach level<0, *>
  std::uint64_t wrong = 0;      // complete, but impossible
  // Impossible ones whose innermost frame is libgcc installing a landing pad's context: for two instructions there the
  // registers are the landing pad's and sp is still its own, which no unwind information describes.
  std::uint64_t installing = 0;
  std::uint64_t call_sites = 0; // return addresses whose call instruction was read and names the frame above
  std::vector<std::string> examples;  // of wrong ones, the frames innermost first, at most ten
  std::vector<std::string> truncated; // likewise
};

// `profile` must be symbolised; `program` is the path of the executable that was recorded.
TruthVerdict check_truth(const profile::Profile& profile, const std::string& program);

}  // namespace windlass::test
