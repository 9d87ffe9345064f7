// A profile that is put together from another tool's file: equal strings, functions, locations and samples are one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profiler/profile/profile.h"
#include "windlass/error.h"
#include "windlass/function_ref.h"

namespace windlass::importer {

// Against hostile input. Memory stays proportional to these.
struct Limits {
  std::uint64_t max_bytes = std::uint64_t{1} << 30;         // of a text, uncompressed
  std::uint64_t max_record_bytes = std::uint64_t{8} << 30;  // of compressed records of perf
  std::uint64_t max_items = std::uint64_t{1} << 26;         // frames, functions, samples and so on, all together
};

class ProfileBuilder {
 public:
  static constexpr std::size_t kMostEvents = 64;  // each sample looks for its own
  explicit ProfileBuilder(const Limits& limits) : left_(limits.max_items) { profile_.events.clear(); }

  [[nodiscard]] std::uint32_t string(std::string_view text);
  // "[kernel...]" is the kernel.
  [[nodiscard]] std::uint32_t module(std::string_view path);
  [[nodiscard]] std::uint32_t add_module(profile::Module module);
  [[nodiscard]] std::uint32_t function(std::string_view name, std::string_view file = {}, std::uint32_t start_line = 0);
  [[nodiscard]] std::uint32_t location(std::uint32_t module, std::uint64_t address);
  // One that the file names.
  [[nodiscard]] std::uint32_t location(std::uint32_t module, std::uint64_t address,
                                       std::span<const profile::Line> lines);
  // At most kMostEvents.
  [[nodiscard]] std::uint32_t event(profile::Event event);
  [[nodiscard]] std::uint32_t labels(std::string_view key, std::string_view value);
  // Adds to the sample with the same stack, thread, event, labels, end and certainty. `at`: when it was taken, in ns of
  // any clock. Times are kept of events whose samples all have one count and one value: each time stands for these.
  void add(const profile::Sample& sample, std::optional<std::uint64_t> at = std::nullopt) {
    add_to(sample_of(sample), sample, at);
  }
  // The number of that sample, which has no value yet if it is new. Counts the frames again if they are known: for
  // files that name a stack by a number, and can do that often in few bytes.
  [[nodiscard]] std::uint32_t sample_of_reference(const profile::Sample& sample);
  // Adds the count and the value to the sample of that number.
  void add_to(std::uint32_t number, const profile::Sample& sample, std::optional<std::uint64_t> at = std::nullopt);
  // Events with a smaller rank come first. To be called last.
  void sort_events(FunctionRef<std::uint64_t(std::uint32_t number)> rank);
  // Times of the profile count from `time`, of the same clock as those of add(); without it from the first that is
  // kept. No time that is kept may be earlier.
  void count_times_from(std::uint64_t time) { origin_ = time; }
  // Counts work that makes no item.
  void count(std::uint64_t items) { left_ -= items < left_ ? items : left_; }

  // False: the file has more than the limit on items; profile() says so.
  [[nodiscard]] bool has_room() const { return left_ != 0 && !too_many_events_; }
  [[nodiscard]] profile::Profile& edit() { return profile_; }
  // kLimit: too many items, or sums over 64 bits.
  [[nodiscard]] Expected<profile::Profile> profile();

 private:
  template <typename Make>
  std::uint32_t find_or_add(std::unordered_map<std::string, std::uint32_t>& known, std::string key, std::size_t next,
                            Make make);
  std::uint32_t sample_of(const profile::Sample& sample);
  void place_times();

  // Of an event's samples, as they were added.
  struct Added {
    std::uint64_t sum = 0;
    std::uint64_t count = 0, value = 0;  // of the first one
    bool equal = true;                   // all have these
    bool timed = false;                  // one or more had a time
  };
  struct Moment {
    std::uint32_t sample = 0;
    std::uint64_t time = 0;
  };

  std::uint64_t left_;
  std::uint64_t origin_ = ~std::uint64_t{0};  // of times
  profile::Profile profile_;
  std::unordered_map<std::string, std::uint32_t> strings_, modules_, functions_, locations_, samples_, label_sets_;
  std::vector<Added> added_;  // of each event
  std::vector<Moment> moments_;
  bool overflow_ = false, too_many_events_ = false;
};

}  // namespace windlass::importer
