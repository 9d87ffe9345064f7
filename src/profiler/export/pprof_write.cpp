#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <protozero/pbf_writer.hpp>
#include <span>
#include <unordered_map>
#include <utility>

#include "profiler/export/frames.h"
#include "profiler/export/gzip.h"
#include "profiler/export/pprof.h"
#include "profiler/export/pprof_fields.h"

namespace windlass::exporter {

namespace {

using protozero::pbf_writer;

// Writes one top-level field after the other into the compressed stream; only the string table stays in memory.
class PprofWriter {
 public:
  PprofWriter(const profile::Profile& profile, TextWriter& out, const std::atomic<bool>* given_up)
      : profile_(profile), gzip_(out), given_up_(given_up), types_(value_types(profile)), values_(types_.size()) {
    string_id("");
  }

  Expected<void> write() {
    write_head();
    for (const auto& sample : profile_.samples) write_sample(sample);
    write_mappings();
    for (std::size_t i = 0; i < profile_.locations.size(); ++i) write_location(i);
    for (std::size_t i = 0; i < profile_.functions.size(); ++i) write_function(i);
    for (std::size_t i = 0; i < unnamed_.size(); ++i) write_unnamed_function(i);
    for (const auto text : strings_)
      field([&](pbf_writer& w) { w.add_string(pprof::kStringTable, text.data(), text.size()); });
    if (is_given_up()) return fail(ErrorCode::kSystem, "the profile is not wanted any more", 0, ECANCELED);
    return gzip_.finish();
  }

 private:
  [[nodiscard]] bool is_given_up() const { return given_up_ != nullptr && *given_up_; }

  // `build` adds fields of the Profile message itself.
  template <typename Build>
  void field(Build build) {
    if (is_given_up()) return;
    buffer_.clear();
    pbf_writer writer(buffer_);
    build(writer);
    gzip_.write(buffer_);
  }
  template <typename Build>
  void message(std::uint32_t tag, Build build) {
    field([&](pbf_writer& parent) {
      pbf_writer child(parent, tag);
      build(child);
    });
  }

  std::int64_t string_id(std::string_view text) {
    const auto [entry, is_new] = string_ids_.try_emplace(text, static_cast<std::int64_t>(strings_.size()));
    if (is_new) strings_.push_back(text);
    return entry->second;
  }

  void value_type(std::uint32_t tag, std::string_view type, std::string_view unit) {
    message(tag, [&](pbf_writer& w) {
      w.add_int64(pprof::kType, string_id(type));
      w.add_int64(pprof::kUnit, string_id(unit));
    });
  }

  void write_head() {
    for (const profile::ValueType type : types_)
      value_type(pprof::kSampleType, name_of(profile_, type), unit_of(profile_, type));
    const auto timed = std::ranges::find_if(profile_.events, [](const auto& event) { return event.period != 0; });
    const profile::Event& periodic = timed != profile_.events.end() ? *timed : profile_.events.front();
    value_type(pprof::kPeriodType, periodic.name, periodic.unit);
    lost_ = profile_.lost != 0 ? fmt::format("{}{}", pprof::kLostComment, profile_.lost) : std::string();
    field([&](pbf_writer& w) {
      w.add_int64(pprof::kTimeNanos, static_cast<std::int64_t>(profile_.start_unix_ns));
      w.add_int64(pprof::kDurationNanos, static_cast<std::int64_t>(profile_.duration_ns));
      w.add_int64(pprof::kPeriod, static_cast<std::int64_t>(periodic.period));
      for (const auto& comment : profile_.comments) w.add_int64(pprof::kComment, string_id(comment));
      if (!lost_.empty()) w.add_int64(pprof::kComment, string_id(lost_));
      w.add_int64(pprof::kDefaultSampleType, string_id(profile_.events[profile_.shown_event].name));
      numbers_.clear();
      for (const profile::Event& event : profile_.events) numbers_.push_back(event.per_time);
      if (has_times(profile_)) w.add_packed_uint64(pprof::kCountsOfTimes, numbers_.begin(), numbers_.end());
    });
  }

  void label(pbf_writer& sample, std::string_view key, std::string_view text) {
    pbf_writer w(sample, pprof::kSampleLabel);
    w.add_int64(pprof::kLabelKey, string_id(key));
    w.add_int64(pprof::kLabelStr, string_id(text));
  }
  void label(pbf_writer& sample, std::string_view key, std::uint32_t number) {
    pbf_writer w(sample, pprof::kSampleLabel);
    w.add_int64(pprof::kLabelKey, string_id(key));
    w.add_int64(pprof::kLabelNum, number);
  }

  void write_sample(const profile::Sample& sample) {
    message(pprof::kSample, [&](pbf_writer& w) {
      ids_.assign(sample.locations.begin(), sample.locations.end());
      for (auto& id : ids_) ++id;  // ids are indexes + 1: 0 means none
      w.add_packed_uint64(pprof::kSampleLocationId, ids_.begin(), ids_.end());
      for (std::size_t i = 0; i < types_.size(); ++i)
        values_[i] = static_cast<std::int64_t>(weight_of(profile_, sample, types_[i]));
      w.add_packed_int64(pprof::kSampleValue, values_.begin(), values_.end());
      label(w, pprof::kPidLabel, sample.pid);
      label(w, pprof::kTidLabel, sample.tid);
      if (sample.comm < profile_.strings.size()) label(w, pprof::kCommLabel, profile_.strings[sample.comm]);
      if (profile::is_truncated(sample.end))
        label(w, pprof::kTruncatedLabel, profile::end_text(sample.end));
      else if (sample.end != WL_END_COMPLETE)
        label(w, pprof::kEndLabel, profile::end_text(sample.end));
      if (sample.certainty != WL_DESCRIBED) label(w, pprof::kCertaintyLabel, profile::certainty_text(sample.certainty));
      for (const profile::Label& one : profile_.label_sets[sample.labels])
        label(w, profile_.strings[one.key], profile_.strings[one.value]);
      if (sample.times != 0) write_times(w, times_of(profile_, sample));
    });
  }

  void write_times(pbf_writer& sample, std::span<const profile::SampleTime> times) {
    numbers_.clear();
    std::uint64_t last = 0;
    for (const profile::SampleTime& time : times) numbers_.push_back(time.begin - std::exchange(last, time.begin));
    sample.add_packed_uint64(pprof::kSampleTimes, numbers_.begin(), numbers_.end());
    if (std::ranges::all_of(times, [](const auto& time) { return time.lasted == 0; })) return;
    numbers_.clear();
    for (const profile::SampleTime& time : times) numbers_.push_back(time.lasted);
    sample.add_packed_uint64(pprof::kSampleLasted, numbers_.begin(), numbers_.end());
  }

  void write_mappings() {
    std::vector<bool> named(profile_.modules.size());
    for (const auto& location : profile_.locations)
      if (location.module < named.size() && !location.lines.empty()) named[location.module] = true;
    for (std::size_t i = 0; i < profile_.modules.size(); ++i) {
      const auto& module = profile_.modules[i];
      message(pprof::kMapping, [&](pbf_writer& w) {
        w.add_uint64(pprof::kMappingId, i + 1);
        w.add_uint64(pprof::kMemoryStart, module.begin);
        w.add_uint64(pprof::kMemoryLimit, module.end);
        w.add_uint64(pprof::kFileOffset, module.file_offset);
        w.add_int64(pprof::kFilename, string_id(module.path));
        w.add_int64(pprof::kBuildId, string_id(module.build_id));
        // So that viewers do not look for symbols themselves.
        if (named[i])
          for (auto tag : {pprof::kHasFunctions, pprof::kHasFilenames, pprof::kHasLineNumbers, pprof::kHasInlineFrames})
            w.add_bool(tag, true);
      });
    }
  }

  void write_location(std::size_t index) {
    const auto& location = profile_.locations[index];
    message(pprof::kLocation, [&](pbf_writer& w) {
      w.add_uint64(pprof::kLocationId, index + 1);
      if (location.module < profile_.modules.size()) w.add_uint64(pprof::kLocationMappingId, location.module + 1);
      w.add_uint64(pprof::kAddress, location.address);
      for (const auto& line : location.lines) {
        pbf_writer child(w, pprof::kLine);
        child.add_uint64(pprof::kLineFunctionId, std::uint64_t{line.function} + 1);
        if (line.line != 0) child.add_int64(pprof::kLineNumber, line.line);
      }
      if (location.lines.empty()) {  // viewers drop frames without a function: give it one, see write_unnamed_function
        pbf_writer child(w, pprof::kLine);
        child.add_uint64(pprof::kLineFunctionId, profile_.functions.size() + 1 + unnamed_id(location));
      }
    });
  }

  // Addresses of one module in one function share a stand-in.
  std::size_t unnamed_id(const profile::Location& location) {
    const auto [entry, is_new] = unnamed_ids_.try_emplace(
        fmt::format("{}:{}", location.module, unnamed_frame(profile_, location)), unnamed_.size());
    if (is_new) unnamed_.push_back(unnamed_frame(profile_, location));
    return entry->second;
  }

  void write_function(std::size_t index) {
    const auto& function = profile_.functions[index];
    message(pprof::kFunction, [&](pbf_writer& w) {
      w.add_uint64(pprof::kFunctionId, index + 1);
      w.add_int64(pprof::kName, string_id(function.name));
      w.add_int64(pprof::kSystemName, string_id(function.system_name));
      if (!function.file.empty()) w.add_int64(pprof::kSourceFile, string_id(function.file));
      if (function.start_line != 0) w.add_int64(pprof::kStartLine, function.start_line);
    });
  }

  // "module+0xoffset" for an address nobody names. Without a system name, which every real function has: the reader
  // takes it away again.
  void write_unnamed_function(std::size_t index) {
    message(pprof::kFunction, [&](pbf_writer& w) {
      w.add_uint64(pprof::kFunctionId, profile_.functions.size() + 1 + index);
      w.add_int64(pprof::kName, string_id(unnamed_[index]));
    });
  }

  const profile::Profile& profile_;
  GzipWriter gzip_;
  const std::atomic<bool>* given_up_;
  std::vector<profile::ValueType> types_;
  std::vector<std::int64_t> values_;  // of a sample, in this order
  std::string buffer_;
  std::string lost_;
  std::vector<std::uint64_t> ids_, numbers_;
  std::vector<std::string> unnamed_;
  std::unordered_map<std::string, std::size_t> unnamed_ids_;
  std::unordered_map<std::string_view, std::int64_t> string_ids_;
  std::vector<std::string_view> strings_;
};

Expected<void> write_to_descriptor(const profile::Profile& profile, int fd, const std::atomic<bool>* given_up) {
  TextWriter out(fd);
  auto written = write_pprof(profile, out, given_up);
  if (::close(fd) != 0 && written) return fail(ErrorCode::kSystem, "cannot write the profile", 0, errno);
  return written;
}

}  // namespace

Expected<void> write_pprof(const profile::Profile& profile, TextWriter& out, const std::atomic<bool>* given_up) {
  return PprofWriter(profile, out, given_up).write();
}

Expected<void> write_pprof_file(const profile::Profile& profile, const std::string& path,
                                const std::atomic<bool>* given_up) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return fail(ErrorCode::kSystem, "cannot open the profile for writing", 0, errno);
    return write_to_descriptor(profile, fd, given_up);
  }
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return fail(ErrorCode::kSystem, "cannot create the profile", 0, errno);
  auto written = write_to_descriptor(profile, fd, given_up);
  if (written && ::rename(temporary.c_str(), path.c_str()) != 0)
    written = fail(ErrorCode::kSystem, "cannot rename the profile into place", 0, errno);
  if (!written) ::unlink(temporary.c_str());
  return written;
}

}  // namespace windlass::exporter
