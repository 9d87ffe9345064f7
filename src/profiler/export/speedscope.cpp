#include "profiler/export/speedscope.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>

#include "base/json_writer.h"
#include "profiler/export/frames.h"
#include "profiler/export/processes.h"
#include "profiler/export/stacks.h"

namespace windlass::exporter {

namespace {

// Those of the schema.
constexpr std::string_view kUnits[] = {"nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"};

class SpeedscopeWriter {
 public:
  SpeedscopeWriter(const profile::Profile& profile, TextWriter& out, std::optional<profile::ValueType> first)
      : profile_(profile),
        out_(out),
        json_(out),
        frames_(profile),
        first_(first.value_or(value_of(profile.shown_event))) {}

  Expected<void> write() {
    // Every frame must be known before the frame list is written.
    for (const profile::Sample& sample : profile_.samples) frames_.begin_path(sample, path_);
    json_.begin_object();
    json_.member("$schema", "https://www.speedscope.app/file-format-schema.json");
    json_.member("exporter", "windlass " WINDLASS_VERSION);
    json_.member("name", "windlass");
    json_.member("activeProfileIndex", 0);
    json_.key("shared");
    json_.begin_object();
    write_frames();
    json_.end_object();
    json_.key("profiles");
    json_.begin_array();
    write_event(first_);
    for (std::uint32_t event = 0; event < profile_.events.size(); ++event)
      if (event != first_.event) write_event(value_of(event));
    if (has_wall_time(profile_) && !is_wall_time(first_)) write_event(profile::kWallTime);
    json_.end_array();
    json_.end_object();
    json_.end_text();
    return out_.finish();
  }

 private:
  static std::uint64_t weight(const DistinctStacks& stacks) {
    std::uint64_t sum = 0;
    for (const auto& stack : stacks.stacks()) sum += stack.weight;
    return sum;
  }
  // Time instead of samples.
  [[nodiscard]] profile::ValueType value_of(std::uint32_t event) const {
    return {event, profile_.events[event].unit == "count"};
  }
  // All processes together, then each. With several events, the value's name goes before each.
  void write_event(profile::ValueType type) {
    type_ = type;
    DistinctStacks all(profile_, stacks_, type_);
    all.add_all(profile_.samples);
    const std::vector<Process> processes = processes_of(profile_, type_);
    const std::string lead = profile_.events.size() > 1 ? name_of(profile_, type_) + ": " : "";
    write_profile(lead + (processes.empty()      ? "empty"
                          : processes.size() > 1 ? "all processes"
                                                 : processes[0].name),
                  all);
    if (processes.size() < 2) return;
    std::map<std::uint32_t, DistinctStacks> by_process;
    for (const auto& sample : profile_.samples)
      by_process.try_emplace(sample.pid, profile_, stacks_, type_).first->second.add(sample);
    for (const Process& process : processes) write_profile(lead + process.name, by_process.at(process.pid));
  }
  void write_frames() {
    json_.key("frames");
    json_.begin_array();
    for (std::uint32_t id = 0; id < frames_.size(); ++id) {
      const Frame& frame = frames_[id];
      json_.next_line();
      json_.begin_object();
      json_.member("name", frame.name);
      if (!frame.file.empty()) {
        json_.member("file", frame.file);
        if (frame.line != 0) json_.member("line", frame.line);
      } else if (frame.module < profile_.modules.size()) {
        json_.member("file", profile_.modules[frame.module].path);
      }
      json_.end_object();
    }
    json_.end_array();
  }

  void write_profile(const std::string& name, const DistinctStacks& stacks) {
    json_.next_line();
    json_.begin_object();
    json_.member("type", "sampled");
    json_.member("name", name);
    const std::string& unit = unit_of(profile_, type_);
    json_.member("unit", std::ranges::find(kUnits, unit) != std::end(kUnits) ? unit : "none");
    json_.member("startValue", 0);
    json_.member("endValue", weight(stacks));
    json_.key("samples");
    json_.begin_array();
    for (const auto& stack : stacks.stacks()) write_stack(*stack.sample);
    json_.end_array();
    json_.key("weights");
    json_.begin_array();
    for (const auto& stack : stacks.stacks()) json_.value(stack.weight);
    json_.end_array();
    json_.end_object();
  }

  void write_stack(const profile::Sample& sample) {
    json_.next_line();
    json_.begin_array();
    frames_.path_of(sample, path_);
    for (const std::uint32_t id : path_) json_.value(id);
    json_.end_array();
  }

  const profile::Profile& profile_;
  TextWriter& out_;
  JsonWriter json_;
  Frames frames_;
  const StackNodes stacks_{profile_};
  const profile::ValueType first_;
  profile::ValueType type_;
  std::vector<std::uint32_t> path_;  // of the sample at hand
};

}  // namespace

Expected<void> write_speedscope(const profile::Profile& profile, TextWriter& out,
                                std::optional<profile::ValueType> first) {
  return SpeedscopeWriter(profile, out, first).write();
}

}  // namespace windlass::exporter
