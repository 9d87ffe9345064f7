// A profile made by rule, for tests of the exporters: reproducible, of any size, with everything a real one has.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "profiler/profile/profile.h"

namespace windlass::testing {

struct SyntheticShape {
  std::uint32_t samples = 2000;  // Sample entries
  std::uint32_t functions = 300;
  std::uint32_t stacks = 1000;  // distinct ones, at most
  std::uint32_t processes = 3;
  std::uint32_t depth = 24;
  double truncated = 0.01;
};

// The stacks form a random tree: a stack shares its outer frames with others, as real ones do.
inline profile::Profile synthetic_profile(const SyntheticShape& shape = {}, std::uint32_t seed = 1) {
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  profile::Profile p;
  p.events.front().period = 1'001'001;
  p.start_unix_ns = 1'790'000'000'000'000'000;
  p.duration_ns = 10'000'000'000;
  p.lost = 7;
  p.comments = {"windlass record -F 999 -- workload", "synthetic <profile> & \"quotes\""};
  p.strings = {"worker", "main", "io thread"};
  p.modules.push_back({.path = "/usr/bin/workload",
                       .open_path = {},
                       .build_id = "0123456789abcdef",
                       .begin = 0x1000,
                       .end = 0x200000,
                       .file_offset = 0x1000});
  p.modules.push_back({.path = "/usr/lib/libwork.so.1",
                       .open_path = {},
                       .build_id = "fedcba9876543210",
                       .begin = 0x2000,
                       .end = 0x300000,
                       .file_offset = 0x2000});
  p.modules.push_back({.path = "[kernel]",
                       .open_path = {},
                       .build_id = {},
                       .begin = 0xffffffff81000000,
                       .end = 0xffffffff82000000,
                       .is_kernel = true});
  p.modules.push_back({.path = "/usr/lib/libstripped.so", .open_path = {}, .build_id = {}, .begin = 0, .end = 0x10000});
  const char* names[] = {"parse", "evaluate", "compile", "hash", "sort", "read", "emit", "walk", "merge", "lookup"};
  for (std::uint32_t i = 0; i < shape.functions; ++i) {
    const std::uint32_t kind = i % 10;
    const std::uint32_t module = kind < 6 ? 0 : kind < 8 ? 1 : kind < 9 ? 2 : 3;
    const std::string base = std::string(names[below(10)]) + "_" + std::to_string(i);
    profile::Location location{.module = module, .address = p.modules[module].begin + 0x40 * (i + 1), .lines = {}};
    if (module != 3) {
      const auto function = static_cast<std::uint32_t>(p.functions.size());
      p.functions.push_back({.name = module == 2 ? base : "work::" + base + "(int, std::vector<long> const&)",
                             .system_name = "_Z" + base,
                             .file = module == 2 ? "" : "/src/" + base + ".cpp",
                             .start_line = module == 2 ? 0 : i + 10});
      location.lines.push_back({function, module == 2 ? 0 : i + 12});
      if (i % 7 == 3 && function > 0) location.lines.push_back({function - 1, 99});  // inlined into the one before
    }
    p.locations.push_back(location);
  }
  std::vector<std::vector<std::uint32_t>> stacks{{0}};
  while (stacks.size() < shape.stacks) {
    auto stack = stacks[below(static_cast<std::uint32_t>(stacks.size()))];
    if (stack.size() >= shape.depth) stack.resize(1 + below(shape.depth));
    const auto more = 1 + below(4);
    for (std::uint32_t i = 0; i < more; ++i) stack.push_back(below(shape.functions));
    stacks.push_back(std::move(stack));
  }
  for (std::uint32_t i = 0; i < shape.samples; ++i) {
    const auto& stack = stacks[i < stacks.size() ? i : below(static_cast<std::uint32_t>(stacks.size()))];
    const std::uint32_t pid = 100 + below(shape.processes);
    profile::Sample sample{.locations = {stack.rbegin(), stack.rend()},
                           .count = 1 + below(9),
                           .pid = pid,
                           .tid = pid + below(2),
                           .comm = below(3),
                           .end = WL_END_COMPLETE,
                           .certainty = static_cast<std::uint8_t>(i % WL_CERTAINTY_COUNT)};
    if (below(10'000) < shape.truncated * 10'000) {
      sample.end = below(2) == 0 ? WL_END_NO_ROW : WL_END_UNREADABLE_STACK;
      sample.locations.resize(1 + sample.locations.size() / 2);
    }
    if (i == 5) sample = {.locations = {8}, .count = 3, .pid = 2, .tid = 2, .comm = 0, .end = WL_END_KERNEL_ONLY};
    p.samples.push_back(std::move(sample));
  }
  return p;
}

}  // namespace windlass::testing
