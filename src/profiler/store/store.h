// A store of profiles: the samples of many intervals, asked for by labels and time.
//
// For example, a recorder appends a batch every 10 seconds. A report asks for all stacks of the process "nginx" between
// two times. An interval belongs to the time at which it begins, so that two ranges side by side share no sample.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/profile/profile.h"
#include "windlass/bytes.h"
#include "windlass/error.h"

namespace windlass::store {

// Labels that every sample has, besides those of its label set.
inline constexpr std::string_view kHostLabel = "host";
// The label process.executable.name of the sample, else the name of the process's main thread.
inline constexpr std::string_view kProcessLabel = "process";
inline constexpr std::string_view kThreadLabel = "thread";  // the thread's name
inline constexpr std::string_view kPidLabel = "pid";
inline constexpr std::string_view kTidLabel = "tid";

// Tells a batch from all others. A batch that comes twice counts once.
struct BatchId {
  std::string host;
  std::uint64_t agent_start_ns = 0;  // Unix time
  std::uint64_t sequence = 0;        // of the agent's batches
};

// One interval of one recorder, in Unix time.
struct Batch {
  BatchId id;
  std::uint64_t begin_ns = 0, end_ns = 0;
  const profile::Profile& profile;
};

struct Label {
  std::string key, value;
  auto operator<=>(const Label&) const = default;
};

// All parts must hold.
struct Filter {
  std::string event;          // Event::name; empty: all events
  std::vector<Label> labels;  // a sample has each of these
  // True: stacks() need not tell hosts and threads apart. A store may then name the process alone in label sets.
  bool process_is_enough = false;
};

// How often, and how much in the event's unit.
struct Sums {
  std::uint64_t count = 0, value = 0;
  bool operator==(const Sums&) const = default;
};

// One event over time: sums of each step, the first of which begins at `from`.
struct Series {
  profile::Event event;
  std::vector<Sums> steps;
};
inline constexpr std::uint64_t kMostSteps = 1'000'000;

// One value of a label, and one event.
struct Total {
  std::string value;
  profile::Event event;
  Sums sums;
};

// All labels of a sample.
struct LabelSet {
  std::string host, process;
  std::optional<std::string> thread;
  std::uint32_t pid = 0, tid = 0;
  std::vector<Label> labels;  // of the sample's own label set, in its order
  bool operator==(const LabelSet&) const = default;
};

// A stack with its sums over the range.
struct StackSums {
  std::uint32_t event = 0, labels = 0;  // indexes into Stacks
  std::uint64_t stack = 0;              // for ProfileStore::frames()
  std::uint8_t end = 0, certainty = 0;  // of profile::Sample
  Sums sums;
};

struct Stacks {
  // Of all intervals in the range, whether they have samples or not. A period is part of an event.
  std::vector<profile::Event> events;
  std::vector<LabelSet> label_sets;
  std::vector<StackSums> stacks;  // no two agree in all but the sums
  // Of the intervals in the range that fit the filter's host. Durations and lost samples add up.
  std::uint64_t intervals = 0, begin_ns = 0, duration_ns = 0, lost = 0;
  std::uint32_t shown_event = 0;  // of the first interval; an index into `events`
  bool ends_known = true;
  std::vector<std::string> comments;
};

struct Frames {
  std::vector<profile::Module> modules;
  std::vector<profile::Function> functions;
  std::vector<profile::Location> locations;
  // Of each stack asked for: indexes into `locations`, innermost first.
  std::vector<std::vector<std::uint32_t>> stacks;
};

struct Extent {
  std::uint64_t begin_ns = 0, end_ns = 0;
  // The longest of the intervals; of a long history, of the latest ones. A step of a series below this has gaps.
  std::uint64_t interval_ns = 0;
  bool operator==(const Extent&) const = default;
};

// A symbol file (formats/wlsym) that a store keeps.
struct StoredSymbols {
  std::string build_id;  // as in profile::Module
  std::string name;      // of the program or library
  std::uint64_t rank = 0;
  std::uint64_t bytes = 0;
  bool operator==(const StoredSymbols&) const = default;
};

// Not thread-safe. Times are Unix times in ns; `to` is behind the range.
class ProfileStore {
 public:
  ProfileStore() = default;
  ProfileStore(const ProfileStore&) = delete;
  ProfileStore& operator=(const ProfileStore&) = delete;
  virtual ~ProfileStore() = default;

  // All of the batch is kept, or nothing. False: it was there already.
  [[nodiscard]] virtual Expected<bool> append(const Batch& batch) = 0;
  // From the begin of the first interval to the end of the last. Nothing: there is no interval.
  [[nodiscard]] virtual Expected<std::optional<Extent>> extent() = 0;
  // The keys of labels, sorted.
  [[nodiscard]] virtual Expected<std::vector<std::string>> labels() = 0;
  // The values of one of them, sorted.
  [[nodiscard]] virtual Expected<std::vector<std::string>> values(std::string_view label) = 0;
  // A series for each event that has samples. At most kMostSteps steps.
  [[nodiscard]] virtual Expected<std::vector<Series>> series(const Filter& filter, std::uint64_t from, std::uint64_t to,
                                                             std::uint64_t step) = 0;
  // Sums of each value of a label, and of each event, that have samples; in no order.
  [[nodiscard]] virtual Expected<std::vector<Total>> totals(std::string_view label, const Filter& filter,
                                                            std::uint64_t from, std::uint64_t to) = 0;
  [[nodiscard]] virtual Expected<Stacks> stacks(const Filter& filter, std::uint64_t from, std::uint64_t to) = 0;
  // An error if one of the stacks is not there.
  [[nodiscard]] virtual Expected<Frames> frames(std::span<const std::uint64_t> stacks) = 0;

  // Symbol files, one a build id. No bound of history deletes these. A store without them says kUnsupported when one is
  // put, and has none.
  //
  // Takes the place of a file of the same or a smaller rank. False: the store has one of a greater rank.
  [[nodiscard]] virtual Expected<bool> put_symbols(const StoredSymbols& about, ByteView file);
  // Nothing: the store has none.
  [[nodiscard]] virtual Expected<std::optional<std::string>> symbols(std::string_view build_id);
  // By build id.
  [[nodiscard]] virtual Expected<std::vector<StoredSymbols>> symbol_files();
};

}  // namespace windlass::store
