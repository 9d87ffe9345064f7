// What each thread did, one after the other: for exporters that show time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/profile/profile.h"

namespace windlass::exporter {

// A sample of an instant, or a wait.
struct Moment {
  std::uint64_t begin = 0, lasted = 0;  // ns; `lasted`: of a wait, else how much time the sample stands for
  std::uint64_t weight = 0;             // of the chosen value; 0: a wait of another event
  std::uint32_t sample = 0;             // an index into Profile::samples
  bool is_wait = false;
};

struct ThreadLine {
  std::uint32_t pid = 0, tid = 0;
  std::string name, process;
  std::vector<Moment> moments;  // by begin
};

struct ThreadLines {
  std::vector<ThreadLine> threads;  // those of a process together, its main thread first; the busiest process first
  bool made_up = false;             // The profile has no times: samples stand one behind the other, like ones together.
  std::uint64_t left_out = 0;       // samples of the chosen value without a time
};

// The samples with a value of `type`, and waits.
[[nodiscard]] ThreadLines thread_lines(const profile::Profile& profile, profile::ValueType type);

// What people should know of the line: that it is made up, what is left out; empty: nothing.
[[nodiscard]] std::string note_of(const ThreadLines& lines);

// What the code of a location is.
enum class CodeKind : std::uint8_t { kOther, kUser, kKernel, kGenerated };
[[nodiscard]] CodeKind code_kind(const profile::Profile& profile, const profile::Location& location);

// Why waits were ones: "futex"; the event's name if a sample does not say it.
class Reasons {
 public:
  explicit Reasons(const profile::Profile& profile);
  [[nodiscard]] std::string_view of(const profile::Sample& sample) const;

 private:
  const profile::Profile& profile_;
  std::vector<std::uint32_t> of_set_;  // of each label set: its reason, or kNone
};

}  // namespace windlass::exporter
