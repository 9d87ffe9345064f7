// Checks the stacks of a profile of tests/workloads/truth.cpp, truth_throws.cpp or truth_windows.cpp by what these can
// possibly do.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "profiler/profile/profile.h"

namespace windlass::test {

struct TruthVerdict {
  std::uint64_t samples = 0;           // samples of the program's own code, from its entry point on
  std::uint64_t complete = 0;          // of these, whole by the profiler's own word
  std::uint64_t in_levels = 0;         // complete ones that reach level<0, *>
  std::uint64_t wrong = 0;             // complete, but impossible
  std::uint64_t call_sites = 0;        // return addresses whose call instruction was read and names the frame above
  std::vector<std::string> examples;   // of wrong ones, the frames innermost first, at most ten
  std::vector<std::string> truncated;  // likewise
};

// In what the programs differ. Names as in the symbol table.
struct TruthRules {
  std::vector<std::string> outermost;  // one of these is every stack's last frame
  std::string root;                    // calls the paths
  // What may stand below the root, innermost first; no entry: anything.
  std::vector<std::vector<std::string>> below_root;
  std::vector<std::string> paths;  // what the root calls, and calls level<0, *>
  // Callbacks that call level<0, *>, each with the path that leaves the program on the way to it.
  std::vector<std::pair<std::string, std::string>> callbacks;
  std::vector<std::string> leaves;  // what any level may call, and whatever stands above it
  // All of the program's frames from level 0's caller (without `entrance`) to the function that the system called,
  // innermost first. If given, no other stack is possible, and `paths`, `callbacks` and `below_root` are not used.
  std::vector<std::vector<std::string>> chains = {};
  std::string entrance = {};
  std::vector<std::pair<std::string, std::string>> tails = {};  // a function, and the one called that jumps to it
  // Roots of chains whose outermost frame, the only one below, has no name: the C library's code that ends a context.
  std::vector<std::string> nameless = {};
  bool calls_elsewhere = false;                 // a level may also call what is not the program's
  std::string bottom = {};                      // called by the innermost level there is only; empty: no such function
  int depth = 0;                                // how many levels it has below it
  std::vector<std::string> only_in_paths = {};  // whoever calls these has been called by way of a path
};
// word: how std::uint64_t is mangled, 'm' or, for i386, 'y'.
[[nodiscard]] TruthRules linux_truth(char word = 'm');
[[nodiscard]] TruthRules throwing_truth(char word = 'm');
[[nodiscard]] TruthRules windows_truth();

// `profile` must be symbolised; `program` is the path of the executable that was recorded.
TruthVerdict check_truth(const profile::Profile& profile, const std::string& program,
                         const TruthRules& rules = linux_truth());

}  // namespace windlass::test
