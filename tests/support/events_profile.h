// A small profile with two events: ticks of CPU time, and waits with a value each and the label "reason".
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "profiler/profile/profile.h"

namespace windlass::testing {

// cpu: 40 samples of 1 ms: 10 of process 7, 30 of process 8. off-cpu: 8 waits, 4.5 ms, of process 7 alone: 2 of 3 ms by
// futex, 1 of 1 ms by page fault, 5 of 0.5 ms without a label. Each is together.
inline profile::Profile events_profile() {
  profile::Profile p;
  p.strings = {"main", "worker", "reason", "futex", "page fault"};
  p.events = {{.period = 1'000'000}, {.name = "off-cpu", .unit = "nanoseconds", .counted = "waits"}};
  p.label_sets = {{}, {{2, 3}}, {{2, 4}}};
  p.duration_ns = 1'000'000'000;
  p.modules.push_back({.path = "/usr/bin/events", .begin = 0, .end = 0x10000});
  const char* names[] = {"main", "run", "wait"};
  for (std::uint32_t i = 0; i < 3; ++i) {
    p.functions.push_back({.name = names[i], .system_name = names[i], .file = "/src/events.c", .start_line = 10 * i});
    p.locations.push_back({.module = 0, .address = 0x100 * (i + 1), .lines = {{i, 10 * i + 1}}});
  }
  const auto add = [&](std::vector<std::uint32_t> locations, std::uint64_t count, std::uint32_t pid, std::uint32_t tid,
                       std::uint64_t value, std::uint32_t event, std::uint32_t labels) {
    p.samples.push_back({.locations = std::move(locations),
                         .count = count,
                         .pid = pid,
                         .tid = tid,
                         .comm = tid - pid,
                         .value = value,
                         .event = event,
                         .labels = labels});
  };
  add({1, 0}, 10, 7, 7, 0, 0, 0);
  add({2, 0}, 2, 7, 7, 3'000'000, 1, 1);
  add({1, 0}, 30, 8, 8, 0, 0, 0);
  add({2, 1, 0}, 1, 7, 8, 1'000'000, 1, 2);
  add({2, 0}, 5, 7, 7, 500'000, 1, 0);
  return p;
}

}  // namespace windlass::testing
