#include "profiler/export/firefox.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "profiler/export/firefox_tables.h"

namespace windlass::exporter {
namespace {

constexpr double kMillisecond = 1e6, kMicrosecond = 1e3;
constexpr int kDigits = 6;    // of milliseconds: nanoseconds
constexpr int kInterval = 1;  // MarkerPhase

class FirefoxWriter {
 public:
  FirefoxWriter(const profile::Profile& profile, const ThreadLines& lines, profile::ValueType type, TextWriter& out)
      : profile_(profile),
        lines_(lines),
        type_(type),
        out_(out),
        json_(out),
        tables_(profile),
        reasons_(profile),
        is_time_(!type.counts && unit_of(profile, type) == "nanoseconds") {
    // The tables have to be complete before they are written.
    stacks_.resize(profile.samples.size(), profile::kNone);
    for (const ThreadLine& thread : lines.threads)
      for (const Moment& moment : thread.moments)
        if (stacks_[moment.sample] == profile::kNone) stacks_[moment.sample] = tables_.stack_of(moment.sample);
    for (const profile::Event& event : profile.events) tables_.string_of(event.name);
  }

  Expected<void> write() {
    json_.begin_object();
    write_meta();
    tables_.write_libraries(json_);
    tables_.write_shared(json_);
    json_.key("threads");
    json_.begin_array();
    for (const ThreadLine& thread : lines_.threads) write_thread(thread);
    json_.end_array();
    json_.end_object();
    json_.end_text();
    return out_.finish();
  }

 private:
  // A row of a thread's samples. One without a stack and weight says that the thread was at rest from then on.
  struct Row {
    std::uint64_t time = 0, weight = 0, busy = 0;
    std::uint32_t stack = profile::kNone;
  };

  void milliseconds(std::uint64_t nanoseconds) {
    json_.value(static_cast<double>(nanoseconds) / kMillisecond, kDigits);
  }
  void milliseconds(std::string_view name, std::uint64_t nanoseconds) {
    json_.key(name);
    milliseconds(nanoseconds);
  }

  [[nodiscard]] std::uint64_t end() const {
    std::uint64_t last = profile_.duration_ns;
    for (const ThreadLine& thread : lines_.threads)
      if (!thread.moments.empty()) last = std::max(last, thread.moments.back().begin + thread.moments.back().lasted);
    return last;
  }
  // Between two samples of a thread that is never at rest.
  [[nodiscard]] std::uint64_t interval() const {
    const profile::Event& event = profile_.events[is_wall_time(type_) ? profile_.shown_event : type_.event];
    return event.unit == "nanoseconds" && event.period != 0 ? event.period : 1'000'000;
  }

  void write_meta() {
    json_.key("meta");
    json_.begin_object();
    milliseconds("interval", interval());
    milliseconds("startTime", profile_.start_unix_ns);
    milliseconds("profilingStartTime", 0);
    milliseconds("profilingEndTime", end());
    json_.member("processType", 0);
    json_.member("product", "windlass");
    json_.member("importedFrom", "windlass " WINDLASS_VERSION);
    json_.member("stackwalk", 1);
    json_.member("version", 31);
    json_.member("preprocessedProfileVersion", 61);
    json_.member("symbolicated", true);
    json_.member("usesOnlyOneStackType", true);
    json_.member("sourceCodeIsNotOnSearchfox", true);
    write_categories(json_);
    write_marker_schema();
    json_.key("sampleUnits");
    json_.begin_object();
    json_.member("time", "ms");
    json_.member("eventDelay", "ms");
    json_.member("threadCPUDelta", "µs");
    json_.end_object();
    write_notes();
    json_.end_object();
  }
  void write_marker_schema() {
    json_.key("markerSchema");
    json_.begin_array();
    json_.begin_object();
    json_.member("name", "Wait");
    json_.key("display");
    json_.begin_array();
    for (const char* place : {"marker-chart", "marker-table", "timeline-overview"}) json_.value(place);
    json_.end_array();
    for (const char* label : {"chartLabel", "tableLabel", "tooltipLabel"}) json_.member(label, "{marker.data.reason}");
    json_.key("fields");
    json_.begin_array();
    json_.begin_object();
    json_.member("key", "reason");
    json_.member("label", "Waits for");
    json_.member("format", "string");
    json_.end_object();
    json_.end_array();
    json_.end_object();
    json_.end_array();
  }
  // Shown behind "i", with the rest of what is known of the recording.
  void write_notes() {
    std::vector<std::string> notes = profile_.comments;
    if (std::string note = note_of(lines_); !note.empty()) notes.push_back(std::move(note));
    json_.key("extra");
    json_.begin_array();
    json_.begin_object();
    json_.member("label", "Recording");
    json_.key("entries");
    json_.begin_array();
    for (std::size_t i = 0; i < notes.size(); ++i) {
      json_.begin_object();
      json_.member("label", "note " + std::to_string(i + 1));
      json_.member("format", "string");
      json_.member("value", notes[i]);
      json_.end_object();
    }
    json_.end_array();
    json_.end_object();
    json_.end_array();
  }

  void write_thread(const ThreadLine& thread) {
    json_.next_line();
    json_.begin_object();
    json_.member("processType", "default");
    json_.member("processName", thread.process);
    json_.member("processStartupTime", 0);
    json_.key("processShutdownTime");
    json_.null();
    json_.member("registerTime", 0);
    json_.key("unregisterTime");
    json_.null();
    json_.key("pausedRanges");
    json_.begin_array();
    json_.end_array();
    json_.member("name", thread.name);
    json_.member("isMainThread", thread.tid == thread.pid);
    json_.member("pid", std::to_string(thread.pid));
    json_.member("tid", thread.tid);
    write_samples(rows_of(thread));
    write_markers(thread);
    json_.end_object();
  }

  [[nodiscard]] std::vector<Row> rows_of(const ThreadLine& thread) const {
    std::vector<Row> rows;
    std::uint64_t covered = 0;  // until then
    const std::uint64_t step = interval();
    for (const Moment& moment : thread.moments) {
      if (moment.weight == 0) continue;
      // Firefox draws a sample until the next one. What lies between two that are far apart is rest.
      if (!rows.empty() && moment.begin > covered && (moment.begin - covered) / 2 > step) {
        rows.push_back({.time = covered});
        rows.push_back({.time = moment.begin - step});
      }
      rows.push_back({moment.begin, moment.weight, moment.is_wait ? 0 : moment.lasted, stacks_[moment.sample]});
      covered = moment.begin + moment.lasted;
    }
    return rows;
  }

  void write_samples(const std::vector<Row>& rows) {
    json_.key("samples");
    json_.begin_object();
    json_.member("length", rows.size());
    const std::string& unit = unit_of(profile_, type_);
    json_.member("weightType", is_time_ ? "tracing-ms" : unit == "bytes" ? "bytes" : "samples");
    const auto column = [&](std::string_view name, auto write) {
      json_.key(name);
      json_.begin_array();
      for (const Row& row : rows) write(row);
      json_.end_array();
    };
    column("stack", [&](const Row& row) {
      if (row.stack == profile::kNone)
        json_.null();
      else
        json_.value(row.stack);
    });
    column("time", [&](const Row& row) { milliseconds(row.time); });
    column("weight", [&](const Row& row) { is_time_ ? milliseconds(row.weight) : json_.value(row.weight); });
    column("threadCPUDelta", [&](const Row& row) { json_.value(static_cast<double>(row.busy) / kMicrosecond, 3); });
    json_.end_object();
  }

  void write_markers(const ThreadLine& thread) {
    std::vector<const Moment*> waits;
    for (const Moment& moment : thread.moments)
      if (moment.is_wait) waits.push_back(&moment);
    json_.key("markers");
    json_.begin_object();
    json_.member("length", waits.size());
    const auto column = [&](std::string_view name, auto write) {
      json_.key(name);
      json_.begin_array();
      for (const Moment* wait : waits) write(*wait, profile_.samples[wait->sample]);
      json_.end_array();
    };
    column("data", [&](const Moment& wait, const profile::Sample& sample) { write_wait(wait, sample); });
    column("name", [&](const Moment&, const profile::Sample& sample) {
      json_.value(tables_.string_of(profile_.events[sample.event].name));
    });
    column("startTime", [&](const Moment& wait, const auto&) { milliseconds(wait.begin); });
    column("endTime", [&](const Moment& wait, const auto&) { milliseconds(wait.begin + wait.lasted); });
    column("phase", [&](const Moment&, const auto&) { json_.value(kInterval); });
    column("category", [&](const Moment&, const auto&) { json_.value(category_of(CodeKind::kOther)); });
    json_.end_object();
  }
  void write_wait(const Moment& wait, const profile::Sample& sample) {
    json_.begin_object();
    json_.member("type", "Wait");
    json_.member("reason", reasons_.of(sample));
    if (const std::uint32_t stack = stacks_[wait.sample]; stack != profile::kNone) {
      json_.key("cause");
      json_.begin_object();
      milliseconds("time", wait.begin);
      json_.member("stack", stack);
      json_.end_object();
    }
    json_.end_object();
  }

  const profile::Profile& profile_;
  const ThreadLines& lines_;
  const profile::ValueType type_;
  TextWriter& out_;
  JsonWriter json_;
  FirefoxTables tables_;
  Reasons reasons_;
  std::vector<std::uint32_t> stacks_;  // of each sample
  const bool is_time_;                 // weights are milliseconds
};

}  // namespace

Expected<void> write_firefox(const profile::Profile& profile, const ThreadLines& lines, profile::ValueType type,
                             TextWriter& out) {
  return FirefoxWriter(profile, lines, type, out).write();
}

}  // namespace windlass::exporter
