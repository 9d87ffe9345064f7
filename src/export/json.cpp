#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "export/call_tree.h"
#include "export/json_text.h"
#include "export/report.h"

namespace windlass::exporter {

namespace {

class JsonWriter {
 public:
  JsonWriter(const profile::Profile& profile, Output& out)
      : profile_(profile), out_(out), frames_(profile), tree_(profile, frames_) {}

  Expected<void> write() {
    write_profile();
    for (std::size_t i = 0; i < profile_.modules.size(); ++i) write_module(i);
    write_functions();
    for (std::uint32_t i = 0; i < profile_.locations.size(); ++i) write_location(i);
    for (const auto& sample : profile_.samples) write_sample(sample);
    return out_.finish();
  }

 private:
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_.clear();
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
    out_.write(text_);
  }
  static std::string text_or_null(std::string_view text) { return text.empty() ? "null" : json_string(text); }
  static std::string number_or_null(bool known, std::uint64_t number) {
    return known ? fmt::format("{}", number) : "null";
  }
  std::string module_or_null(std::uint32_t module) const {
    return number_or_null(module < profile_.modules.size(), module);
  }

  void write_profile() {
    const auto totals = totals_of(profile_);
    std::string comments;
    for (const auto& comment : profile_.comments) comments += (comments.empty() ? "" : ",") + json_string(comment);
    line(R"({{"type":"profile","samples":{},"truncated":{},"lost":{},"period_ns":{},"start_unix_ns":{},)"
         R"("duration_ns":{},"comments":[{}]}})",
         totals.samples, totals.truncated, profile_.lost, profile_.period_ns, profile_.start_unix_ns,
         profile_.duration_ns, comments);
  }
  void write_module(std::size_t i) {
    line(R"({{"type":"module","id":{},"path":{},"build_id":{}}})", i, json_string(profile_.modules[i].path),
         text_or_null(profile_.modules[i].build_id));
  }
  void write_functions() {
    std::vector<std::uint32_t> order(frames_.size());
    std::iota(order.begin(), order.end(), 0u);
    const auto& counts = tree_.functions();
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(counts[a].self, counts[a].total) > std::pair(counts[b].self, counts[b].total);
    });
    for (const auto id : order) {
      const Frame& frame = frames_[id];
      if (frame.kind == FrameKind::kComm || frame.kind == FrameKind::kTruncated) continue;
      line(R"({{"type":"function","id":{},"name":{},"module":{},"file":{},"line":{},"self":{},"total":{}}})", id,
           json_string(frame.name), module_or_null(frame.module), text_or_null(frame.file),
           number_or_null(frame.line != 0, frame.line), counts[id].self, counts[id].total);
    }
  }
  void write_location(std::uint32_t i) {
    const auto& location = profile_.locations[i];
    const auto ids = frames_.of_location(i);
    std::string lines;
    for (std::size_t n = 0; n < ids.size(); ++n) {
      const std::uint32_t number = n < location.lines.size() ? location.lines[n].line : 0;
      fmt::format_to(std::back_inserter(lines), R"({}{{"function":{},"line":{}}})", n == 0 ? "" : ",", ids[n],
                     number_or_null(number != 0, number));
    }
    line(R"({{"type":"location","id":{},"module":{},"address":{},"lines":[{}]}})", i, module_or_null(location.module),
         location.address, lines);
  }
  void write_sample(const profile::Sample& sample) {
    const std::string comm = sample.comm < profile_.strings.size() ? profile_.strings[sample.comm] : "";
    line(R"({{"type":"sample","count":{},"pid":{},"tid":{},"comm":{},"truncated":{},"locations":[{}]}})", sample.count,
         sample.pid, sample.tid, json_string(comm),
         profile::is_truncated(sample.end) ? json_string(profile::end_text(sample.end)) : "null",
         fmt::join(sample.locations, ","));
  }

  const profile::Profile& profile_;
  Output& out_;
  Frames frames_;
  CallTree tree_;
  std::string text_;
};

}  // namespace

Expected<void> write_json(const profile::Profile& profile, Output& out) { return JsonWriter(profile, out).write(); }

}  // namespace windlass::exporter
