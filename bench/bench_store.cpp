// A store of profiles: what an interval costs to append and to keep, and what an hour costs to read.
//
// bench_store FROM.db NEW.db: reads the intervals of a store that `windlass agent` has made, and appends them again and
// again until NEW.db has an hour. Stacks come again after the first round, as they do on a machine that does the same
// all the time.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "profiler/store/open_store.h"
#include "profiler/store/read_profile.h"

namespace {

using namespace windlass;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kStep = 10'000'000'000;  // ns
constexpr std::uint64_t kHour = 360;             // intervals

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::vector<profile::Profile> intervals_of(store::ProfileStore& from) {
  std::vector<profile::Profile> all;
  const auto whole = from.stacks({}, 0, ~std::uint64_t{0});
  if (!whole) return all;
  for (std::uint64_t at = whole->begin_ns; at <= whole->begin_ns + whole->duration_ns; at += kStep) {
    auto one = store::read_profile(from, {}, at, at + kStep);
    if (one && !one->samples.empty()) all.push_back(std::move(*one));
  }
  return all;
}

std::uint64_t count_of(const profile::Profile& profile) {
  std::uint64_t sum = 0;
  for (const auto& sample : profile.samples) sum += sample.count;
  return sum;
}

template <typename Ask>
void time(const char* what, Ask ask) {
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const auto start = Clock::now();
    ask();
    best = std::min(best, ms_since(start));
  }
  fmt::print("{}: {:.1f} ms (best of 5)\n", what, best);
}

int run(const std::string& from_path, const std::string& path) {
  const auto from = store::open_store(from_path);
  if (!from) return fmt::print(stderr, "{}\n", from.error().text()), 1;
  const auto intervals = intervals_of(**from);
  if (intervals.empty()) return fmt::print(stderr, "no intervals\n"), 1;
  auto to = store::open_store(path, {.write = true, .keep = {}});
  if (!to) return fmt::print(stderr, "{}\n", to.error().text()), 1;
  std::vector<double> times;
  std::uint64_t samples = 0, rows = 0;
  for (std::uint64_t i = 0; i < kHour; ++i) {
    const profile::Profile& one = intervals[i % intervals.size()];
    const auto start = Clock::now();
    const auto appended = (*to)->append({{"host", 1, i}, kStep * (i + 1), kStep * (i + 2), one});
    if (!appended) return fmt::print(stderr, "{}\n", appended.error().text()), 1;
    times.push_back(ms_since(start));
    samples += count_of(one);
    rows += one.samples.size();
  }
  std::ranges::sort(times);
  fmt::print("{} intervals of {} different ones, {} samples, {} rows\n", kHour, intervals.size(), samples, rows);
  fmt::print("append: median {:.1f} ms, most {:.1f} ms\n", times[times.size() / 2], times.back());
  to->reset();  // writes the log back
  const auto bytes = std::filesystem::file_size(path);
  fmt::print("{} bytes: {:.1f} a sample, {:.1f} a row\n", bytes,
             static_cast<double>(bytes) / static_cast<double>(samples),
             static_cast<double>(bytes) / static_cast<double>(rows));
  const auto store = store::open_store(path);
  if (!store) return 1;
  store::ProfileStore& it = **store;
  const auto processes = it.values("process");
  const store::Filter first{"", {{"process", processes && !processes->empty() ? processes->front() : ""}}};
  time("an hour as a profile", [&] { (void)store::read_profile(it, {}, 0, ~std::uint64_t{0}); });
  time("an hour of one process as a profile", [&] { (void)store::read_profile(it, first, 0, ~std::uint64_t{0}); });
  time("an hour as a series of minutes", [&] { (void)it.series({}, 0, kStep * 400, 6 * kStep); });
  time("ten seconds as a profile", [&] { (void)store::read_profile(it, {}, kStep * 100, kStep * 101); });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) return run(argv[1], argv[2]);
  fmt::print(stderr, "usage: bench_store FROM.db NEW.db\n");
  return 2;
}
