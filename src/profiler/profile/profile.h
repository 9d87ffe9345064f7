// A profile in memory: collected by the agent, completed by symbolisation, written by every exporter. Indexes are into
// the vectors of Profile. Each string is owned here once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profiler/profile/stack.h"
#include "windlass_ends.h"

namespace windlass::profile {

inline constexpr std::uint32_t kNone = 0xffffffff;

// A file that code was mapped from; or the kernel, the vdso, anonymous memory.
struct Module {
  std::string path;  // As the process saw it; "[kernel]", "[vdso]", "[anon]".
  // Where symbolisation can open the file after sampling: /proc/PID/root/..., map_files, or /proc/self/fd/N of a
  // descriptor that is kept open, and outlives the process. Empty: `path` is tried, and used only if its build id
  // agrees.
  std::string open_path{};
  std::string build_id{};  // Lower-case hex, empty if unknown.
  // One executable mapping, in the numbering of Location::address (without bias); for pprof.
  std::uint64_t begin = 0, end = 0, file_offset = 0;
  std::uint32_t pid = 0;  // "[anon]" only: the process (/tmp/perf-PID.map names its code); 0: shared.
  bool is_kernel = false;
};

struct Function {
  std::string name;           // Demangled, with parameters; "name@plt" for a linkage stub.
  std::string system_name{};  // As in the symbol table; equal to `name` if not mangled.
  std::string file{};         // The source file of the lines that name this function.
  std::uint32_t start_line = 0;
};

struct Line {
  std::uint32_t function = kNone;
  std::uint32_t line = 0;
};

// A code address. `address` is in the numbering of the module's ELF file, without bias; for kernel and anonymous memory
// it is absolute. A return address is stored as the return address - 1, so that it names the call.
struct Location {
  std::uint32_t module = kNone;
  std::uint64_t address = 0;
  std::vector<Line> lines{};         // Innermost inlined function first. Empty until symbolised, or if unknown.
  bool interpreted = false;          // `lines` begins with the function that the interpreter's evaluator at this
                                     // address ran.
  std::uint64_t function_begin = 0;  // Of the symbol that names it, else by the unwind information; 0: unknown.
};

// What samples are taken of: ticks of CPU time, waits, page faults.
struct Event {
  std::string name = "cpu";
  std::string unit = "nanoseconds";  // Of the values; "count" where only how often matters.
  std::string counted = "samples";   // What Sample::count counts.
  std::uint64_t period = 0;          // The value of each sample, in the unit; 0: each has a value of its own.
  std::uint64_t per_time = 0;        // What one of a sample's times stands for, of its count; 0: there are no times.
};

// "reason" = "futex". Keys and values are indexes into Profile::strings.
struct Label {
  std::uint32_t key = kNone, value = kNone;
  bool operator==(const Label&) const = default;
};

// When a sample was taken, or a wait began, in ns since the recording's start.
struct SampleTime {
  std::uint64_t begin = 0;
  std::uint64_t lasted = 0;  // Of a wait; else 0.
  bool operator==(const SampleTime&) const = default;
};

struct Sample {
  Stack locations{};  // Innermost first, kernel frames before user frames.
  std::uint64_t count = 0;
  std::uint32_t pid = 0, tid = 0;
  std::uint32_t comm = kNone;    // An index into Profile::strings.
  std::uint8_t end = 0;          // A wl_end: complete, or why truncated.
  std::uint8_t certainty = 0;    // The wl_certainty of the least certain frame.
  std::uint64_t value = 0;       // Of all `count` together, in the event's unit; ignored if the event has a period.
  std::uint32_t event = 0;       // An index into Profile::events.
  std::uint32_t labels = 0;      // An index into Profile::label_sets.
  std::uint32_t times = 0;       // How many times of it are known; at most count / Event::per_time.
  std::uint64_t first_time = 0;  // An index into Profile::times.
};

struct Profile {
  std::vector<std::string> strings;
  std::vector<Module> modules;
  std::vector<Function> functions;
  std::vector<Location> locations;
  std::vector<Sample> samples;
  std::vector<SampleTime> times{};                 // Those of a sample stand together, in their order.
  std::vector<Event> events{Event{}};              // Never empty.
  std::uint32_t shown_event = 0;                   // What a view shows unless told otherwise.
  std::vector<std::vector<Label>> label_sets{{}};  // Each once, unless `roots` tells them apart; the first is empty.
  // Of each label set: the string that stands above the thread's name in its samples' stacks, or kNone. Mostly empty.
  std::vector<std::uint32_t> roots{};

  std::uint64_t start_unix_ns = 0;
  std::uint64_t duration_ns = 0;
  bool ends_known = true;             // False: its file does not say whether stacks are whole.
  std::uint64_t lost = 0;             // Samples that the ring buffer had no room for.
  std::vector<std::string> comments;  // How it was recorded, for people.
};

[[nodiscard]] inline std::span<const SampleTime> times_of(const Profile& profile, const Sample& sample) {
  return {profile.times.data() + sample.first_time, sample.times};
}
[[nodiscard]] inline std::span<SampleTime> times_of(Profile& profile, const Sample& sample) {
  return {profile.times.data() + sample.first_time, sample.times};
}

// How many samples were taken, of all events together. `scales`: of each event what a sample adds to Sample::count, for
// example 100 for page-faults@100; 1 where there is none.
[[nodiscard]] inline std::uint64_t count_samples(std::span<const Sample> samples,
                                                 std::span<const std::uint64_t> scales) {
  std::uint64_t sum = 0;
  for (const Sample& sample : samples)
    sum +=
        sample.event < scales.size() && scales[sample.event] != 0 ? sample.count / scales[sample.event] : sample.count;
  return sum;
}
[[nodiscard]] inline std::uint64_t count_samples(const Profile& profile, std::span<const std::uint64_t> scales = {}) {
  return count_samples(std::span(profile.samples), scales);
}

[[nodiscard]] inline bool has_times(const Profile& profile) {
  for (const Event& event : profile.events)
    if (event.per_time != 0) return true;
  return false;
}

// One of the numbers that samples have: how often, or how much of an event's unit.
struct ValueType {
  std::uint32_t event = 0;
  bool counts = true;
};

// All time of threads, on and off a CPU: the events "cpu" and "off-cpu" together, if a profile has both.
inline constexpr ValueType kWallTime{kNone, false};
[[nodiscard]] inline bool is_wall_time(ValueType type) { return type.event == kWallTime.event; }
[[nodiscard]] inline bool has_wall_time(const Profile& profile) {
  bool on = false, off = false;
  for (const Event& event : profile.events) {
    on |= event.name == "cpu" && event.unit == "nanoseconds";
    off |= event.name == "off-cpu" && event.unit == "nanoseconds";
  }
  return on && off;
}

// Of a value.
[[nodiscard]] inline const Event& event_of(const Profile& profile, ValueType type) {
  static const Event kWall{.name = "wall", .counted = "samples"};
  return is_wall_time(type) ? kWall : profile.events[type.event];
}

// What a sample adds to a sum of these values: 0 for one of another event.
[[nodiscard]] inline std::uint64_t weight_of(const Profile& profile, const Sample& sample, ValueType type) {
  const Event& event = profile.events[sample.event];
  const bool is_time = is_wall_time(type) && (event.name == "cpu" || event.name == "off-cpu");
  if (sample.event != type.event && !is_time) return 0;
  if (type.counts) return sample.count;
  return event.period != 0 ? sample.count * event.period : sample.value;
}

// An index into `strings`; kNone: the thread's name is the root.
[[nodiscard]] inline std::uint32_t root_of(const Profile& profile, const Sample& sample) {
  return profile.roots.empty() ? kNone : profile.roots[sample.labels];
}

// "samples", "cpu"; the unit is "count" for the former.
[[nodiscard]] inline const std::string& name_of(const Profile& profile, ValueType type) {
  const Event& event = event_of(profile, type);
  return type.counts ? event.counted : event.name;
}
[[nodiscard]] inline const std::string& unit_of(const Profile& profile, ValueType type) {
  static const std::string kCount = "count";
  return type.counts ? kCount : event_of(profile, type).unit;
}

// Every event's count, then its value unless that is the count: the values of a pprof sample, in this order.
[[nodiscard]] inline std::vector<ValueType> value_types(const Profile& profile) {
  std::vector<ValueType> types;
  for (std::uint32_t event = 0; event < profile.events.size(); ++event) {
    types.push_back({event, true});
    if (profile.events[event].unit != "count") types.push_back({event, false});
  }
  return types;
}

// What a view shows unless told otherwise: samples of an event with a period are counted, others' values summed.
[[nodiscard]] inline ValueType shown_of(const Profile& profile, std::uint32_t event) {
  const Event& of = profile.events[event];
  return {event, of.period != 0 || of.unit == "count"};
}
[[nodiscard]] inline ValueType shown_by_default(const Profile& profile) {
  return shown_of(profile, profile.shown_event);
}

// The text of a wl_end; "unknown" for a number that this build does not know.
[[nodiscard]] constexpr const char* end_text(std::uint8_t end) {
  constexpr const char* kTexts[] = {
#define WL_END_TEXT(name, text) text,
      WL_ENDS(WL_END_TEXT)
#undef WL_END_TEXT
  };
  return end < WL_END_COUNT ? kTexts[end] : "unknown";
}

// The text of a wl_certainty; "unknown" for a number that this build does not know.
[[nodiscard]] constexpr const char* certainty_text(std::uint8_t certainty) {
  constexpr const char* kTexts[] = {
#define WL_CERTAINTY_TEXT(name, text) text,
      WL_CERTAINTIES(WL_CERTAINTY_TEXT)
#undef WL_CERTAINTY_TEXT
  };
  return certainty < WL_CERTAINTY_COUNT ? kTexts[certainty] : "unknown";
}

// True if the stack is proven to have all its callers. A kernel thread's stack is whole without a user part.
[[nodiscard]] constexpr bool is_whole(std::uint8_t end) { return end == WL_END_COMPLETE || end == WL_END_KERNEL_ONLY; }
// True if the stack has all its callers by frame pointers, and some frames are not proven.
[[nodiscard]] constexpr bool is_chained(std::uint8_t end) { return end == WL_END_CHAINED; }
// True for every other end: callers are missing.
[[nodiscard]] constexpr bool is_truncated(std::uint8_t end) { return !is_whole(end) && !is_chained(end); }

}  // namespace windlass::profile
