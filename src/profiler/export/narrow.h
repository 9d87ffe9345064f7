// Profiles narrowed to some processes, threads, modules and functions, and stacks cut at a function.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/profile/profile.h"

namespace windlass::exporter {

// Each list keeps the samples that fit one of its entries; an empty one keeps all.
struct Narrowing {
  std::vector<std::string> processes{};  // ids or names
  std::vector<std::string> threads{};    // ids or names
  std::vector<std::string> modules{};    // paths or their last components; of any frame
  std::vector<std::string> functions{};  // of any frame: names, with or without parameters
  std::string focus{}, ignore{};         // POSIX extended regular expressions for names of any frame
  std::string callers_of{};              // stacks end at the innermost such function
  std::string callees_of{};              // stacks begin at the outermost such function
};

struct NarrowingProblem {
  std::string text;     // "no sample has a function f"
  std::string way_out;  // "--focus takes a part of a name"
};

// Takes away what is not wanted, and adds comments that say so: "only function=f", "callers of f". If nothing in the
// profile fits an entry, the first such entry is the answer, and the profile must not be shown.
[[nodiscard]] std::optional<NarrowingProblem> narrow(profile::Profile& profile, const Narrowing& wanted);

}  // namespace windlass::exporter
