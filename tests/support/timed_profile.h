// A small profile with times: ticks of CPU time, and waits.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "profiler/profile/profile.h"

namespace windlass::testing {

inline constexpr std::uint64_t kMs = 1'000'000;

// Thread 7: ticks of 1 ms in one() at 0, 1, 2, 3 ms; a wait of 6 ms in rest() from 4 to 10 ms, by futex; ticks in
// two(), which is inlined into main(), at 10 and 11 ms, and one whose time is not known. Thread 8: a tick in the kernel
// at 5 ms, one in generated code at 6 ms, and one with a truncated stack at 7 ms. The recording lasts 12 ms.
inline profile::Profile timed_profile() {
  profile::Profile p;
  p.strings = {"main", "worker", "reason", "futex"};
  p.events = {{.period = kMs, .per_time = 1},
              {.name = "off-cpu", .unit = "nanoseconds", .counted = "waits", .per_time = 1}};
  p.label_sets = {{}, {{2, 3}}};
  p.start_unix_ns = 1'700'000'000'000'000'000;
  p.duration_ns = 12 * kMs;
  p.modules = {{.path = "/usr/bin/timed", .build_id = "0123456789abcdef0123456789abcdef01234567"},
               {.path = "[kernel]", .is_kernel = true},
               {.path = "[anon]", .pid = 7}};
  for (const char* name : {"main", "one", "rest", "two", "vfs_read", "jitted"})
    p.functions.push_back({.name = name, .system_name = name, .file = "/src/timed.c", .start_line = 3});
  p.locations = {{.module = 0, .address = 0x1010, .lines = {{0, 4}}, .function_begin = 0x1000},
                 {.module = 0, .address = 0x2010, .lines = {{1, 14}}, .function_begin = 0x2000},
                 {.module = 0, .address = 0x3010, .lines = {{2, 24}}, .function_begin = 0x3000},
                 {.module = 0, .address = 0x1020, .lines = {{3, 34}, {0, 5}}, .function_begin = 0x1000},
                 {.module = 1, .address = 0xffffffff81000010, .lines = {{4, 0}}},
                 {.module = 2, .address = 0x7f0000000010, .lines = {{5, 0}}}};
  const auto add = [&](profile::Sample sample, std::vector<profile::SampleTime> times) {
    sample.first_time = p.times.size();
    sample.times = static_cast<std::uint32_t>(times.size());
    p.times.insert(p.times.end(), times.begin(), times.end());
    p.samples.push_back(std::move(sample));
  };
  add({.locations = {1, 0}, .count = 4, .pid = 7, .tid = 7, .comm = 0}, {{0, 0}, {kMs, 0}, {2 * kMs, 0}, {3 * kMs, 0}});
  add({.locations = {2, 0}, .count = 1, .pid = 7, .tid = 7, .comm = 0, .value = 6 * kMs, .event = 1, .labels = 1},
      {{4 * kMs, 6 * kMs}});
  add({.locations = {3}, .count = 3, .pid = 7, .tid = 7, .comm = 0}, {{10 * kMs, 0}, {11 * kMs, 0}});
  add({.locations = {4, 0}, .count = 1, .pid = 7, .tid = 8, .comm = 1}, {{5 * kMs, 0}});
  add({.locations = {5, 0}, .count = 1, .pid = 7, .tid = 8, .comm = 1}, {{6 * kMs, 0}});
  add({.locations = {1}, .count = 1, .pid = 7, .tid = 8, .comm = 1, .end = WL_END_NO_ROW}, {{7 * kMs, 0}});
  return p;
}

}  // namespace windlass::testing
