// Which module of a profile is the program: readers of pprof take the first mapping for it.
#pragma once

#include <cstdint>
#include <string>

#include "profiler/profile/profile.h"

namespace windlass::profiler {

// Makes it the first of Profile::modules: the one of this path, or else, of what the main threads' whole stacks begin
// in, the module with the most samples. Where neither is there, modules stay as they are.
void put_program_first(profile::Profile& profile, const std::string& program);

// The file that a process runs; empty where that cannot be told.
[[nodiscard]] std::string program_of(std::uint32_t pid);

}  // namespace windlass::profiler
