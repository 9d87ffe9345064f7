#include "profiler/export/chrome.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "profiler/export/frames.h"
#include "profiler/export/values.h"

namespace windlass::exporter {
namespace {

class ChromeWriter {
 public:
  ChromeWriter(const profile::Profile& profile, const ThreadLines& lines, profile::ValueType type, TextWriter& out)
      : profile_(profile),
        lines_(lines),
        value_(value_name(profile, type)),
        unit_(unit_of(profile, type)),
        out_(out),
        json_(out),
        frames_(profile),
        reasons_(profile) {
    for (const ThreadLine& thread : lines.threads)
      for (const Moment& moment : thread.moments)
        if (!moment.is_wait) tick_ = std::max(tick_, moment.lasted);
  }

  Expected<void> write() {
    json_.begin_object();
    json_.member("displayTimeUnit", "ms");
    write_other_data();
    json_.key("traceEvents");
    json_.begin_array();
    for (const ThreadLine& thread : lines_.threads) {
      begin("M", "thread_name", thread);
      name_argument(thread.name);
      if (&thread == &lines_.threads.front() || (&thread)[-1].pid != thread.pid) {
        begin("M", "process_name", thread);
        name_argument(thread.process);
      }
      write_slices(thread);
    }
    json_.end_array();
    json_.end_object();
    json_.end_text();
    return out_.finish();
  }

 private:
  struct Open {
    std::uint32_t frame;
    std::uint64_t begin;
    std::string_view waits_for;  // empty: a function
  };

  void write_other_data() {
    json_.key("otherData");
    json_.begin_object();
    json_.member("recorder", "windlass " WINDLASS_VERSION);
    json_.member("start_unix_ns", profile_.start_unix_ns);
    json_.member("value", value_);
    json_.member("unit", unit_);
    if (const std::string note = note_of(lines_); !note.empty()) json_.member("note", note);
    for (std::size_t i = 0; i < profile_.comments.size(); ++i)
      json_.member("comment_" + std::to_string(i + 1), profile_.comments[i]);
    json_.end_object();
  }

  void begin(const char* phase, std::string_view name, const ThreadLine& thread) {
    json_.next_line();
    json_.begin_object();
    json_.member("ph", phase);
    json_.member("pid", thread.pid);
    json_.member("tid", thread.tid);
    json_.member("name", name);
  }
  void name_argument(std::string_view name) {
    json_.key("args");
    json_.begin_object();
    json_.member("name", name);
    json_.end_object();
    json_.end_object();
  }

  [[nodiscard]] const char* category(const Frame& frame) const {
    if (frame.kind == FrameKind::kTruncated || frame.module >= profile_.modules.size()) return "other";
    if (profile_.modules[frame.module].is_kernel) return "kernel";
    return profile_.modules[frame.module].path == "[anon]" ? "generated" : "user";
  }

  // Closes slices until `depth` of them are open.
  void close(const ThreadLine& thread, std::size_t depth, std::uint64_t end) {
    while (open_.size() > depth) {
      const Open& slice = open_.back();
      const Frame* frame = slice.waits_for.empty() ? &frames_[slice.frame] : nullptr;
      begin("X", frame != nullptr ? std::string_view(frame->name) : slice.waits_for, thread);
      // Waits are there with every value.
      json_.member("cat", frame != nullptr ? std::string(category(*frame)) + ',' + value_ : "wait");
      json_.member("ts", static_cast<double>(slice.begin) * 1e-3, 3);
      json_.member("dur", static_cast<double>(end - slice.begin) * 1e-3, 3);
      if (frame != nullptr && frame->module < profile_.modules.size()) {
        json_.key("args");
        json_.begin_object();
        json_.member("module", module_name(profile_.modules[frame->module]));
        json_.end_object();
      }
      json_.end_object();
      open_.pop_back();
    }
  }

  // A sample's stack without the thread's name, which stands at the line.
  void take_path(const profile::Sample& sample) {
    frames_.path_of(sample, path_);
    path_.erase(path_.begin() + (root_of(profile_, sample) != profile::kNone ? 1 : 0));
  }

  // A frame goes on from one sample or wait to the next if all callers are the same, and no more time has passed
  // between them than a sample stands for. A longer time without a sample was spent elsewhere.
  void write_slices(const ThreadLine& thread) {
    std::uint64_t covered = 0;  // until then
    for (std::size_t i = 0; i < thread.moments.size(); ++i) {
      const Moment& moment = thread.moments[i];
      const profile::Sample& sample = profile_.samples[moment.sample];
      if (moment.begin > covered + (moment.is_wait ? tick_ : moment.lasted)) close(thread, 0, covered);
      const std::uint64_t from = std::max(moment.begin, open_.empty() ? 0 : open_.back().begin);
      if (i == 0 || thread.moments[i - 1].sample != moment.sample) take_path(sample);
      if (!open_.empty() && !open_.back().waits_for.empty()) close(thread, open_.size() - 1, std::min(covered, from));
      std::size_t same = 0;
      while (same < open_.size() && same < path_.size() && open_[same].frame == path_[same]) ++same;
      close(thread, same, from);
      for (std::size_t at = same; at < path_.size(); ++at) open_.push_back({path_[at], from, {}});
      if (moment.is_wait) open_.push_back({profile::kNone, from, reasons_.of(sample)});
      const std::uint64_t next = i + 1 < thread.moments.size() ? thread.moments[i + 1].begin : ~std::uint64_t{0};
      covered = std::max(from, std::min(moment.begin + moment.lasted, std::max(next, from)));
    }
    close(thread, 0, covered);
  }

  const profile::Profile& profile_;
  const ThreadLines& lines_;
  std::string value_, unit_;
  TextWriter& out_;
  JsonWriter json_;
  Frames frames_;
  Reasons reasons_;
  std::uint64_t tick_ = 0;           // ns that a sample of the CPU stands for; 0: there are none
  std::vector<std::uint32_t> path_;  // of the sample at hand
  std::vector<Open> open_;           // root first
};

}  // namespace

Expected<void> write_chrome(const profile::Profile& profile, const ThreadLines& lines, profile::ValueType type,
                            TextWriter& out) {
  return ChromeWriter(profile, lines, type, out).write();
}

}  // namespace windlass::exporter
