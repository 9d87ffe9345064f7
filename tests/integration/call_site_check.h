// Checks the stacks of any profile by the machine code: a return address that follows a direct call says which
// function must stand above it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/profile/profile.h"

namespace windlass::test {

struct CallSiteVerdict {
  std::uint64_t agree = 0;       // the call's target is the function above, or reaches it by direct jumps
  std::uint64_t untellable = 0;  // another module, an indirect call, a target that jumps to where the code does not say
  std::uint64_t contradicted = 0;     // the function above cannot have been called from there
  std::vector<std::string> examples;  // of contradictions, at most ten
};

// Counts pairs of neighbouring user frames of complete stacks, weighted by samples. Functions are distinguished by
// their FDEs, so that stripped programs can be judged too. Files are opened by the modules' paths.
CallSiteVerdict check_call_sites(const profile::Profile& profile);

}  // namespace windlass::test
