// When samples were taken, and from when to when waits lasted: a few bytes for each.
//
// Bounds: `max_bytes`; beyond that the oldest times are given up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "profiler/profile/profile.h"
#include "profiler/samples/number_table.h"
#include "windlass_event_layout.h"

namespace windlass::profiler {

// One thread only. Samples have the numbers of the Aggregator.
class TimeLine {
 public:
  explicit TimeLine(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  // `time`: CLOCK_MONOTONIC, ns.
  void add(std::uint32_t sample, std::uint64_t time);
  // Of a stack whose repeats the kernel side counts. Its sample may become known later.
  void add(const wl_stack_key& key, std::uint64_t time, std::uint64_t lasted);

  // What is added between these two is only there until take_back().
  void lend() { lending_ = true; }
  void take_back();

  // The keys so far mean these samples, once and for all: the kernel side starts counting anew.
  using SampleOf = std::function<std::optional<std::uint32_t>(const wl_stack_key&)>;
  void settle(const SampleOf& sample_of);

  // Gives the samples of the profile their times, in ns since `start`. `numbers`: the number of each sample. A sample
  // gets no more times than its count allows by Event::per_time, which must be set.
  void write(profile::Profile& profile, std::span<const std::uint32_t> numbers, std::uint64_t start,
             const SampleOf& sample_of) const;

  // Times that were given up, all of them before `first_kept` (CLOCK_MONOTONIC, ns).
  [[nodiscard]] std::uint64_t given_up() const { return given_up_; }
  [[nodiscard]] std::uint64_t first_kept() const { return first_kept_; }

 private:
  // Whose time it is: a sample's number, or that of a key in the epoch.
  struct Owner {
    std::uint32_t number;
    bool is_key;
  };
  struct Entry {
    Owner owner;
    std::uint64_t time, lasted;
  };
  // Entries as numbers of seven bits a byte; times count from the entry before.
  struct Chunk {
    std::vector<std::uint8_t> bytes;
    std::uint64_t first = 0, last = 0;
    std::size_t count = 0;
  };
  // Between two calls of settle().
  struct Epoch {
    std::deque<Chunk> chunks;
    std::vector<std::uint32_t> samples;  // of each key; empty for the epoch that goes on
  };
  using Use = std::function<void(std::uint32_t sample, std::uint64_t time, std::uint64_t lasted)>;

  std::uint32_t number_of(const wl_stack_key& key);
  void append(const Entry& entry);
  void give_up_oldest();
  [[nodiscard]] std::vector<std::uint32_t> samples_of_keys(const SampleOf& sample_of) const;
  void for_each(const std::vector<std::uint32_t>& now, const Use& use) const;
  template <typename EntryUse>
  static void decode(const Chunk& chunk, EntryUse use);

  std::size_t max_bytes_, bytes_ = 0;
  std::deque<Epoch> epochs_{1};
  std::vector<wl_stack_key> keys_;  // of the last epoch
  NumberTable key_numbers_;
  std::vector<Entry> lent_;
  bool lending_ = false;
  std::uint64_t given_up_ = 0, first_kept_ = 0;
};

}  // namespace windlass::profiler
