// A store with many services and a long history: what the questions of `windlass serve` take.
//
// bench_week NEW.db SERVICES HOURS ROWS: appends an interval every ten seconds. Each has samples of ROWS random
// services, of which some are much busier than others. A service has 30 stacks of 20 to 40 frames and three threads.
// With an existing file nothing is appended.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "profiler/store/open_store.h"
#include "profiler/store/read_profile.h"

namespace {

using namespace windlass;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kBegin = 1'790'000'000'000'000'000 / 3'600'000'000'000 * 3'600'000'000'000;
constexpr std::uint64_t kStep = 10'000'000'000, kHour = 360 * kStep;  // ns
constexpr unsigned kStacks = 30, kThreads = 3, kFunctions = 4000;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Everything that samples may have; samples are of the interval.
class Services {
 public:
  explicit Services(unsigned services) : services_(services) {
    std::mt19937 random(1);
    frame_.modules.push_back({.path = "/usr/bin/service", .build_id = "0123456789abcdef", .begin = 0, .end = 1 << 24});
    for (std::uint32_t i = 0; i < kFunctions; ++i) {
      frame_.functions.push_back({.name = fmt::format("namespace_{}::Class{}::function_{}", i % 7, i % 131, i)});
      frame_.locations.push_back({.module = 0, .address = i * 64, .lines = {{i, i % 900 + 1}}});
    }
    const auto key = text("service");
    for (unsigned i = 0; i < services; ++i) {
      names_.push_back(text(fmt::format("service-{:04}", i)));
      frame_.label_sets.push_back({{key, names_.back()}});
      for (unsigned n = 0; n < kStacks; ++n) {
        auto& stack = stacks_.emplace_back(20 + random() % 20);
        for (auto& location : stack) location = random() % kFunctions;
      }
    }
  }
  profile::Profile interval(std::mt19937& random, unsigned rows) const {
    profile::Profile profile = frame_;
    profile.duration_ns = kStep;
    profile.events[0].period = 52'631'578;  // 19 Hz
    std::uniform_real_distribution<double> part(0, 1);
    for (unsigned i = 0; i < rows; ++i) {
      const auto service = static_cast<unsigned>(services_ * std::pow(part(random), 3));
      const auto thread = static_cast<std::uint32_t>(random() % kThreads);
      profile.samples.push_back({.locations = stacks_[service * kStacks + random() % kStacks],
                                 .count = 1 + random() % 3,
                                 .pid = 1000 + service * 8,
                                 .tid = 1000 + service * 8 + thread,
                                 .comm = names_[service],
                                 .labels = 1 + service});
    }
    return profile;
  }

 private:
  std::uint32_t text(std::string one) {
    frame_.strings.push_back(std::move(one));
    return static_cast<std::uint32_t>(frame_.strings.size() - 1);
  }
  unsigned services_;
  profile::Profile frame_;
  std::vector<std::uint32_t> names_;
  std::vector<std::vector<std::uint32_t>> stacks_;
};

bool append_all(const std::string& path, unsigned services, std::uint64_t hours, unsigned rows) {
  const auto store = store::open_store(path, {.write = true, .keep = {}});
  if (!store) return fmt::print(stderr, "{}\n", store.error().text()), false;
  const Services made(services);
  std::mt19937 random(2);
  std::vector<double> times;
  for (std::uint64_t i = 0; i < hours * 360; ++i) {
    const profile::Profile one = made.interval(random, rows);
    const auto start = Clock::now();
    const auto appended = (*store)->append({{"host", 1, i}, kBegin + i * kStep, kBegin + (i + 1) * kStep, one});
    if (!appended) return fmt::print(stderr, "{}\n", appended.error().text()), false;
    times.push_back(ms_since(start));
  }
  std::ranges::sort(times);
  fmt::print("append: median {:.1f} ms, most {:.1f} ms\n", times[times.size() / 2], times.back());
  return true;
}

// As `windlass serve` does: the store is opened for each answer.
template <typename Ask>
void time(const std::string& path, const char* what, Ask ask) {
  double best = 1e9;
  std::size_t size = 0;
  for (int round = 0; round < 3; ++round) {
    const auto start = Clock::now();
    const auto store = store::open_store(path);
    if (!store) return fmt::print(stderr, "{}\n", store.error().text());
    size = ask(**store);
    best = std::min(best, ms_since(start));
  }
  fmt::print("{}: {:.0f} ms (best of 3, {} rows)\n", what, best, size);
}

int run(const std::string& path, unsigned services, std::uint64_t hours, unsigned rows) {
  if (!std::filesystem::exists(path) && !append_all(path, services, hours, rows)) return 1;
  fmt::print("{} MB, {:.1f} bytes a row\n", std::filesystem::file_size(path) / 1'000'000,
             static_cast<double>(std::filesystem::file_size(path)) / static_cast<double>(hours * 360 * rows));
  const std::uint64_t end = kBegin + hours * kHour;
  const store::Filter none{}, busy{"", {{"service", "service-0000"}}},
      quiet{"", {{"service", fmt::format("service-{:04}", services - 1)}}};
  const auto series = [&](const store::Filter& filter, std::uint64_t from, std::uint64_t step) {
    return [=](store::ProfileStore& store) {
      const auto list = store.series(filter, from, end, step);
      return list && !list->empty() ? list->front().steps.size() : 0;
    };
  };
  const auto totals = [&](std::uint64_t from) {
    return [=](store::ProfileStore& store) {
      const auto list = store.totals("service", {"cpu", {}}, from, end);
      return list ? list->size() : 0;
    };
  };
  const auto profile = [&](const store::Filter& filter, std::uint64_t from) {
    return [=](store::ProfileStore& store) {
      const auto read = store::read_profile(store, filter, from, end);
      return read ? read->samples.size() : 0;
    };
  };
  const std::uint64_t hour = end - kHour, day = end - std::min<std::uint64_t>(hours, 24) * kHour;
  constexpr std::uint64_t kMinute = 6 * kStep;
  time(path, "labels", [](store::ProfileStore& store) { return store.labels()->size(); });
  time(path, "series, all, an hour in 20 s", series(none, hour, 2 * kStep));
  time(path, "series, all, a day in 10 minutes", series(none, day, 10 * kMinute));
  time(path, "series, all, everything in hours", series(none, kBegin, kHour));
  time(path, "series, the busiest service, everything in hours", series(busy, kBegin, kHour));
  time(path, "services of an hour", totals(hour));
  time(path, "services of a day", totals(day + kMinute));
  time(path, "services of everything", totals(kBegin + kMinute));
  time(path, "profile, all, an hour", profile(none, hour));
  time(path, "profile, the busiest service, an hour", profile(busy, hour));
  time(path, "profile, the busiest service, a day", profile(busy, day));
  time(path, "profile, the busiest service, everything", profile(busy, kBegin));
  time(path, "profile, the quietest service, everything", profile(quiet, kBegin));
  time(path, "profile, all, a day", profile(none, day));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return fmt::print(stderr, "usage: bench_week NEW.db SERVICES HOURS ROWS\n"), 2;
  return run(argv[1], static_cast<unsigned>(std::stoul(argv[2])), std::stoul(argv[3]),
             static_cast<unsigned>(std::stoul(argv[4])));
}
