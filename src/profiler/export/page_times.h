// When the samples of the page's table were taken, thread by thread (page_moments.js).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/profile/profile.h"

namespace windlass::exporter {

struct PageThread {
  std::uint32_t process = 0;  // of the page's processes
  std::uint32_t tid = 0;
  std::uint32_t name = profile::kNone;  // that most of its samples have; an index into Profile::strings
};

struct PageTimes {
  std::vector<PageThread> threads;  // empty: the profile has no times
  // Numbers as LEB128. Of each thread: how many times it has. Then of all times, by thread and begin, a column for each
  // of: ns since the time before (of a thread's first one: since the start), the table's entry, and how long it lasted.
  std::string bytes;
};

// `entry_of`: of each sample (PageTable). `pids`: the page's processes, all that samples have. O(times log times) time.
[[nodiscard]] PageTimes page_times(const profile::Profile& profile, const std::vector<std::uint32_t>& entry_of,
                                   const std::vector<std::uint32_t>& pids);

}  // namespace windlass::exporter
