#include "profiler/export/speedscope.h"

#include <map>

#include "base/json_writer.h"
#include "profiler/export/frames.h"
#include "profiler/export/processes.h"
#include "profiler/export/stacks.h"

namespace windlass::exporter {

namespace {

class SpeedscopeWriter {
 public:
  SpeedscopeWriter(const profile::Profile& profile, TextWriter& out)
      : profile_(profile), out_(out), json_(out), frames_(profile) {}

  Expected<void> write() {
    // Every frame of comms and ends must be known before the frame list is written.
    for (const profile::Sample& sample : profile_.samples) {
      frames_.of_comm(sample.comm);
      if (profile::is_truncated(sample.end)) frames_.of_end(sample.end);
    }
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
    write_event(shown_by_default(profile_));
    for (std::uint32_t event = 0; event < profile_.events.size(); ++event)
      if (event != profile_.shown_event) write_event(shown_of(profile_, event));
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
  // All processes together, then each. With several events, the event's name goes before each.
  void write_event(profile::ValueType shown) {
    const profile::Event& event = profile_.events[shown.event];
    type_ = {shown.event, event.unit == "count" || (event.period == 0 && shown.counts)};  // time instead of samples
    DistinctStacks all(profile_, type_);
    all.add_all(profile_.samples);
    const std::vector<Process> processes = processes_of(profile_, type_);
    const std::string lead = profile_.events.size() > 1 ? event.name + ": " : "";
    write_profile(lead + (processes.empty()      ? "empty"
                          : processes.size() > 1 ? "all processes"
                                                 : processes[0].name),
                  all);
    if (processes.size() < 2) return;
    std::map<std::uint32_t, DistinctStacks> by_process;
    for (const auto& sample : profile_.samples)
      by_process.try_emplace(sample.pid, profile_, type_).first->second.add(sample);
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
    json_.member("unit", unit == "nanoseconds" || unit == "bytes" ? unit : "none");
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
    json_.value(frames_.of_comm(sample.comm));
    if (profile::is_truncated(sample.end)) json_.value(frames_.of_end(sample.end));
    for (auto location = sample.locations.rbegin(); location != sample.locations.rend(); ++location) {
      const auto ids = frames_.of_location(*location);
      for (auto id = ids.rbegin(); id != ids.rend(); ++id) json_.value(*id);
    }
    json_.end_array();
  }

  const profile::Profile& profile_;
  TextWriter& out_;
  JsonWriter json_;
  Frames frames_;
  profile::ValueType type_;
};

}  // namespace

Expected<void> write_speedscope(const profile::Profile& profile, TextWriter& out) {
  return SpeedscopeWriter(profile, out).write();
}

}  // namespace windlass::exporter
