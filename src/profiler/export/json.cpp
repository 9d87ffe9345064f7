#include <algorithm>
#include <numeric>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "profiler/export/call_tree.h"
#include "profiler/export/report.h"

namespace windlass::exporter {

namespace {

class ProfileWriter {
 public:
  ProfileWriter(const profile::Profile& profile, TextWriter& out, profile::ValueType type)
      : profile_(profile), out_(out), json_(out), frames_(profile), type_(type), tree_(profile, frames_, type) {
    for (const profile::Event& event : profile.events) only_counts_.push_back(event.unit == "count");
  }

  Expected<void> write() {
    write_profile();
    for (std::size_t i = 0; i < profile_.modules.size(); ++i) write_module(i);
    write_functions();
    for (std::uint32_t i = 0; i < profile_.locations.size(); ++i) write_location(i);
    for (const auto& sample : profile_.samples) write_sample(sample);
    return out_.finish();
  }

 private:
  void begin(std::string_view type) {
    json_.begin_object();
    json_.member("type", type);
  }
  void end() {
    json_.end_object();
    json_.end_text();
  }
  void module_member(std::uint32_t module) { json_.member_or_null("module", module < profile_.modules.size(), module); }

  void write_profile() {
    const auto totals = totals_of(profile_, type_);
    begin("profile");
    json_.member("schema", kJsonSchema);
    json_.member("samples", totals.samples);
    json_.member("truncated", totals.truncated);
    json_.member("chained", totals.chained);
    json_.member("lost", profile_.lost);
    json_.member("value", name_of(profile_, type_));
    json_.member("unit", unit_of(profile_, type_));
    json_.member("start_unix_ns", profile_.start_unix_ns);
    json_.member("duration_ns", profile_.duration_ns);
    json_.key("events");
    json_.begin_array();
    for (const profile::Event& event : profile_.events) {
      json_.begin_object();
      json_.member("name", event.name);
      json_.member("unit", event.unit);
      json_.member("counted", event.counted);
      json_.member("period", event.period);
      if (event.per_time != 0) json_.member("per_time", event.per_time);
      json_.end_object();
    }
    json_.end_array();
    json_.key("comments");
    json_.begin_array();
    for (const auto& comment : profile_.comments) json_.value(comment);
    json_.end_array();
    end();
  }
  void write_module(std::size_t i) {
    begin("module");
    json_.member("id", i);
    json_.member("path", profile_.modules[i].path);
    json_.member_or_null("build_id", profile_.modules[i].build_id);
    end();
  }
  void write_functions() {
    const auto& counts = tree_.functions();
    auto order = functions_by_self(frames_, tree_);
    for (std::uint32_t id = 0; id < frames_.size(); ++id)  // which locations have
      if (counts[id].total == 0) order.push_back(id);
    for (const auto id : order) {
      const Frame& frame = frames_[id];
      begin("function");
      json_.member("id", id);
      json_.member("name", frame.name);
      module_member(frame.modules().size() == 1 ? frame.module : profile::kNone);
      json_.key("modules");
      json_.begin_array();
      for (const auto module : frame.modules()) json_.value(module);
      json_.end_array();
      json_.member_or_null("file", frame.file);
      json_.member_or_null("line", frame.line != 0, frame.line);
      json_.member("self", counts[id].self);
      json_.member("total", counts[id].total);
      end();
    }
  }
  void write_location(std::uint32_t i) {
    const auto& location = profile_.locations[i];
    const auto ids = frames_.of_location(i);
    begin("location");
    json_.member("id", i);
    module_member(location.module);
    json_.member("address", location.address);
    json_.key("lines");
    json_.begin_array();
    for (std::size_t n = 0; n < ids.size(); ++n) {
      const std::uint32_t number = n < location.lines.size() ? location.lines[n].line : 0;
      json_.begin_object();
      json_.member("function", ids[n]);
      json_.member_or_null("line", number != 0, number);
      json_.end_object();
    }
    json_.end_array();
    end();
  }
  // {"reason":["futex"]}, or nothing: other programs may give a sample a label several times.
  void write_labels(const std::vector<profile::Label>& labels) {
    if (labels.empty()) return;
    json_.key("labels");
    json_.begin_object();
    std::vector<std::pair<std::uint32_t, std::vector<std::uint32_t>>> by_key;  // in the order of the keys' first labels
    std::unordered_map<std::uint32_t, std::size_t> places;
    for (const profile::Label& label : labels) {
      const auto [place, is_new] = places.try_emplace(label.key, by_key.size());
      if (is_new) by_key.push_back({label.key, {}});
      by_key[place->second].second.push_back(label.value);
    }
    for (const auto& [key, values] : by_key) {
      json_.escaped_key(profile_.strings[key]);
      json_.begin_array();
      for (const std::uint32_t value : values) json_.value(profile_.strings[value]);
      json_.end_array();
    }
    json_.end_object();
  }
  void write_times(std::span<const profile::SampleTime> times) {
    json_.key("times");
    json_.begin_array();
    for (const profile::SampleTime& time : times) {
      json_.begin_object();
      json_.member("begin", time.begin);
      json_.member("lasted", time.lasted);
      json_.end_object();
    }
    json_.end_array();
  }
  void write_sample(const profile::Sample& sample) {
    const bool truncated = profile::is_truncated(sample.end);
    begin("sample");
    json_.member("event", profile_.events[sample.event].name);
    json_.member("count", sample.count);
    json_.member("value", weight_of(profile_, sample, {sample.event, only_counts_[sample.event]}));
    json_.member("pid", sample.pid);
    json_.member("tid", sample.tid);
    json_.member("comm", sample.comm < profile_.strings.size() ? std::string_view(profile_.strings[sample.comm]) : "");
    json_.member_or_null("truncated", truncated, profile::end_text(sample.end));
    json_.member("certainty", profile::certainty_text(sample.certainty));
    write_labels(profile_.label_sets[sample.labels]);
    json_.key("locations");
    json_.begin_array();
    for (const auto location : sample.locations) json_.value(location);
    json_.end_array();
    if (sample.times != 0) write_times(times_of(profile_, sample));
    end();
  }

  const profile::Profile& profile_;
  TextWriter& out_;
  JsonWriter json_;
  Frames frames_;
  profile::ValueType type_;
  CallTree tree_;
  std::vector<bool> only_counts_;  // of each event: its value is the count
};

}  // namespace

Expected<void> write_json(const profile::Profile& profile, TextWriter& out, profile::ValueType type) {
  return ProfileWriter(profile, out, type).write();
}

}  // namespace windlass::exporter
