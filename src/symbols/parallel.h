// Independent pieces of work on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace windlass::symbols {

// Calls work(i) once for every i below `count`, in that order, as threads get free. Uses at most `threads` threads (0:
// one a CPU), the caller's included. `work` must not throw.
template <typename Work>
void for_each_in_parallel(std::size_t count, unsigned threads, Work work) {
  std::atomic<std::size_t> next = 0;
  const auto take_turns = [&] {
    for (std::size_t i; (i = next.fetch_add(1)) < count;) work(i);
  };
  const unsigned wanted = threads != 0 ? threads : std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::jthread> helpers;  // joins also when starting one fails
  for (unsigned i = 1; i < wanted && i < count; ++i) helpers.emplace_back(take_turns);
  take_turns();
}

}  // namespace windlass::symbols
