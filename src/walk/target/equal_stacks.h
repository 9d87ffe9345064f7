// Threads of a target that stand at the same place.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "walk/target/thread_stacks.h"

namespace windlass::walk {

// Threads whose stacks are equal: the code addresses of all frames, how each was found, and the end. By places in
// `stacks`. Each group and the groups themselves are in the order of the threads. A thread that crashed is alone.
[[nodiscard]] std::vector<std::vector<std::size_t>> equal_stacks(std::span<const ThreadStack> stacks);

// The ids of threads as short as possible, with at most so many ranges: "7, 12-1011, 2 more".
[[nodiscard]] std::string id_ranges(std::span<const std::uint64_t> ids, std::size_t most);

}  // namespace windlass::walk
