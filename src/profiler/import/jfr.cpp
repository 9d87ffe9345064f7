// JDK Flight Recorder's files. The program `jfr` of a JDK reads them, and prints their samples as JSON, about 1 KB a
// frame:
//
//   {"recording": {"events": [{"type": "jdk.ExecutionSample", "values": {
//     "startTime": "2026-11-28T01:09:32.629850537Z",
//     "sampledThread": {"osName": "main", "osThreadId": 19682, "javaName": "main", ...},
//     "stackTrace": {"truncated": false, "frames": [{"method": {"type": {"name": "java\/util\/HashMap", ...},
//       "name": "put", ...}, "lineNumber": 610, ...}, ...]}, ...}}, ...]}}
//
// An event is read when its text is whole, so no more than one event's text is kept.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>

#include "os/child_program.h"
#include "os/descriptor.h"
#include "os/mapped_files.h"
#include "profiler/import/import.h"
#include "profiler/import/json_text.h"
#include "windlass_ends.h"

namespace windlass::importer {
namespace {

using profile::kNone;

constexpr std::size_t kLargestEvent = std::size_t{64} << 20;
constexpr std::chrono::milliseconds kPatience = std::chrono::minutes(30);

// The number at the start of `text`, which is taken off.
std::optional<double> take_number(std::string_view& text) {
  std::size_t size = 0;
  double value = 0, place = 0;
  for (; size < text.size() && (std::isdigit(static_cast<unsigned char>(text[size])) != 0 || text[size] == '.');
       ++size) {
    if (text[size] == '.') {
      place = 1;
    } else {
      value = value * 10 + (text[size] - '0');
      place *= 10;
    }
  }
  if (size == 0) return std::nullopt;
  text.remove_prefix(size);
  return place > 1 ? value / place : value;
}

// Of "PT0.01S", as java.time.Duration prints it.
std::uint64_t nanoseconds(std::string_view text) {
  double seconds = 0;
  if (!text.starts_with("PT")) return 0;
  for (text.remove_prefix(2); !text.empty(); text.remove_prefix(1)) {
    const auto number = take_number(text);
    if (!number || text.empty()) return 0;
    seconds += *number * (text[0] == 'H' ? 3600 : text[0] == 'M' ? 60 : 1);
  }
  return seconds < 1e9 ? static_cast<std::uint64_t>(std::llround(seconds * 1e9)) : 0;
}

// Of "2026-11-28T01:09:32.629850537Z" or "...+01:00", since 1970.
std::optional<std::uint64_t> unix_time(const std::string& text) {
  int year = 0, used = 0;
  unsigned month = 0, day = 0, hour = 0, minute = 0, second = 0;
  // NOLINTBEGIN(bugprone-unchecked-string-to-number-conversion): digits of bounded number, and what is read is counted
  if (std::sscanf(text.c_str(), "%4d-%2u-%2uT%2u:%2u%n", &year, &month, &day, &hour, &minute, &used) != 5)
    return std::nullopt;
  std::string_view rest = std::string_view(text).substr(static_cast<std::size_t>(used));
  // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): the end of a std::string
  if (int more = 0; std::sscanf(rest.data(), ":%2u%n", &second, &more) == 1)
    rest.remove_prefix(static_cast<std::size_t>(more));
  if (hour > 23 || minute > 59 || second > 60) return std::nullopt;
  std::int64_t fraction = 0;
  if (rest.starts_with('.')) {
    std::int64_t digit = 100'000'000;
    for (rest.remove_prefix(1); !rest.empty() && rest[0] >= '0' && rest[0] <= '9'; rest.remove_prefix(1), digit /= 10)
      fraction += (rest[0] - '0') * digit;
  }
  std::int64_t east = 0;  // minutes
  if (unsigned hours = 0, minutes = 0; rest.starts_with('+') || rest.starts_with('-')) {
    if (std::sscanf(rest.data() + 1, "%2u:%2u", &hours, &minutes) != 2) return std::nullopt;
    east = (rest[0] == '-' ? -1 : 1) * static_cast<std::int64_t>(hours * 60 + minutes);
  }
  // NOLINTEND(bugprone-unchecked-string-to-number-conversion)
  const std::chrono::sys_days days = std::chrono::year(year) / std::chrono::month(month) / std::chrono::day(day);
  const std::int64_t minutes =
      std::int64_t{days.time_since_epoch().count()} * 1440 + std::int64_t{hour} * 60 + minute - east;
  constexpr std::int64_t kMostMinutes = INT64_MAX / 60'000'000'000 - 1;
  if (minutes < 0 || minutes > kMostMinutes) return std::nullopt;
  return static_cast<std::uint64_t>((minutes * 60 + second) * 1'000'000'000 + fraction);
}

// A class as "java/util/HashMap". Hidden ones have dots, and a '/' in front of a number.
std::string java_name(std::string type, const std::string& method) {
  if (type.find('.') == std::string::npos) std::ranges::replace(type, '/', '.');
  return type.empty() ? method : type + "." + method;
}

class JfrReader {
 public:
  explicit JfrReader(const Limits& limits) : builder_(limits) {}

  // More of the text. False: no more of it is wanted.
  bool feed(std::string_view text) {
    for (std::size_t at = 0; at < text.size() && !error_;) {
      const std::size_t begin = at;
      const bool inside = depth_ >= kEventDepth;
      at = is_in_string_ ? behind_part_of_string(text, at) : behind_bracket(text, at);
      if (!inside && depth_ >= kEventDepth)
        event_ = '{';
      else if (inside)
        event_.append(text, begin, at - begin);
      if (inside && depth_ < kEventDepth) take_event();
      if (event_.size() > kLargestEvent)
        error_ =
            Error{ErrorCode::kLimit, "an event of the recording is larger than the limit", read_ + at, kLargestEvent};
    }
    read_ += text.size();
    return !error_ && builder_.has_room();
  }

  Expected<profile::Profile> profile() {
    if (error_) return Failure(*error_);
    if (depth_ != 0 || read_ == 0) return fail(ErrorCode::kTruncated, "jfr has ended before its text does", read_);
    if (builder_.edit().events.empty() && builder_.has_room())
      return fail(ErrorCode::kMalformed, "no sample of code in the recording", 0);
    builder_.sort_events([&](std::uint32_t number) { return ~counts_[number]; });
    for (profile::Sample& sample : builder_.edit().samples) sample.pid = pid_;
    if (first_) builder_.count_times_from(*first_);
    builder_.edit().start_unix_ns = first_.value_or(0);
    return builder_.profile();
  }

 private:
  static constexpr std::size_t kEventDepth = 4;  // {"recording": {"events": [{

  // Behind the next bracket outside of strings, or behind the quote that begins one.
  std::size_t behind_bracket(std::string_view text, std::size_t at) {
    at = text.find_first_of("{}[]\"", at);
    if (at == std::string_view::npos) return text.size();
    if (text[at] == '"') is_in_string_ = true;
    if (text[at] == '{' || text[at] == '[') ++depth_;
    if ((text[at] == '}' || text[at] == ']') && depth_ != 0) --depth_;
    return at + 1;
  }
  std::size_t behind_part_of_string(std::string_view text, std::size_t at) {
    if (is_escaped_) {
      is_escaped_ = false;
      return at + 1;
    }
    at = text.find_first_of("\"\\", at);
    if (at == std::string_view::npos) return text.size();
    (text[at] == '"' ? is_in_string_ : is_escaped_) = text[at] != '"';
    return at + 1;
  }

  void take_event() {
    const auto event = JsonValue::parse(event_);
    if (!event) {
      error_ = Error{event.error().code, event.error().what, read_, event.error().detail};
      return;
    }
    const std::string type = (*event)["type"].string();
    const JsonValue values = (*event)["values"];
    if (type == "jdk.JVMInformation")
      pid_ = static_cast<std::uint32_t>(values["pid"].index().value_or(0));
    else if (type.ends_with("Sample"))
      take_sample(type, values);
  }

  void take_sample(std::string_view type, const JsonValue& values) {
    profile::Sample sample{.count = 1, .value = 1};
    const std::uint64_t period = nanoseconds(values["samplingPeriod"].string());
    sample.event = event_of(type, period != 0);
    if (period != 0) sample.value = period;
    const JsonValue thread = values[values["sampledThread"].is_object() ? "sampledThread" : "eventThread"];
    const std::string java = thread["javaName"].string();
    sample.comm = builder_.string(java.empty() ? thread["osName"].string() : java);
    sample.tid = static_cast<std::uint32_t>(thread["osThreadId"].index().value_or(0));
    const JsonValue stack = values["stackTrace"];
    const bool is_cut = stack["truncated"].is_true();
    sample.end = !stack.is_object() ? WL_END_UNREADABLE_STACK : is_cut ? WL_END_DEPTH : WL_END_COMPLETE;
    stack["frames"].for_each([&](const JsonValue& frame) {
      add_frame(frame, sample);
      return builder_.has_room();
    });
    ++counts_[sample.event];
    const auto at = unix_time(values["startTime"].string());
    if (at && (!first_ || *at < *first_)) first_ = at;
    builder_.add(sample, at);
  }
  std::uint32_t event_of(std::string_view type, bool is_time) {
    const auto known = events_.find(type);
    if (known != events_.end()) return known->second;
    std::string name(type.substr(std::min(type.find('.') + 1, type.size())));
    const std::uint32_t event =
        builder_.event(is_time ? profile::Event{.name = "cpu", .counted = name}
                               : profile::Event{.name = name, .unit = "count", .counted = name});
    counts_.resize(std::max<std::size_t>(counts_.size(), event + 1));
    events_.emplace(type, event);
    return event;
  }
  // Java's stack traces leave out the frames of method handles and lambdas. So does the text of jfr.
  void add_frame(const JsonValue& frame, profile::Sample& sample) {
    std::string type, name;
    std::uint32_t line = 0;
    bool is_hidden = false;
    frame.for_each_member([&](std::string_view key, const JsonValue& value) {
      if (key == "lineNumber")  // -1: not known
        line = static_cast<std::uint32_t>(std::min<std::uint64_t>(value.index().value_or(0), kNone - 1));
      if (key != "method") return;
      value.for_each_member([&](std::string_view inner, const JsonValue& of_method) {
        if (inner == "name") name = of_method.string();
        if (inner == "type") type = of_method["name"].string();
        if (inner == "hidden") is_hidden = of_method.is_true();
      });
    });
    if (is_hidden) return;
    const profile::Line named{builder_.function(java_name(std::move(type), name)), line};
    sample.locations.push_back(builder_.location(kNone, 0, {&named, 1}));
  }

  ProfileBuilder builder_;
  std::map<std::string, std::uint32_t, std::less<>> events_;
  std::vector<std::uint64_t> counts_;  // samples of each event
  std::optional<std::uint64_t> first_;
  std::uint32_t pid_ = 0;
  std::string event_;  // its text so far
  std::size_t depth_ = 0;
  bool is_in_string_ = false, is_escaped_ = false;
  std::uint64_t read_ = 0;
  std::optional<Error> error_;
};

// A name for descriptor 3 of who opens it: `jfr` takes no file whose name does not end so.
class NamedRecording {
 public:
  NamedRecording() {
    const char* folder = std::getenv("TMPDIR");
    folder_ = std::string(folder == nullptr || *folder == '\0' ? "/tmp" : folder) + "/windlass.XXXXXX";
    if (::mkdtemp(folder_.data()) == nullptr) return;
    path_ = folder_ + "/recording.jfr";
    if (::symlink("/proc/self/fd/3", path_.c_str()) != 0) path_.clear();
  }
  NamedRecording(const NamedRecording&) = delete;
  NamedRecording& operator=(const NamedRecording&) = delete;
  ~NamedRecording() {
    if (!path_.empty()) ::unlink(path_.c_str());
    ::rmdir(folder_.c_str());
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string folder_, path_;
};

}  // namespace

Expected<profile::Profile> read_jfr_text(std::string_view text, const Limits& limits) {
  JfrReader reader(limits);
  (void)reader.feed(text);
  return reader.profile();
}

Expected<profile::Profile> read_jfr(ByteView bytes, const Limits& limits) {
  const os::Descriptor file(os::open_in_memory(bytes.data(), bytes.size()));
  const NamedRecording named;
  if (!file || named.path().empty())
    return fail(ErrorCode::kSystem, "cannot hand the recording to jfr", 0, static_cast<std::uint64_t>(errno));
  JfrReader reader(limits);
  bool is_read = true;
  const os::ChildProgram program{
      .arguments = {"jfr", "print", "--json", "--stack-depth", "1024", "--events",
                    "jdk.JVMInformation,jdk.ExecutionSample,jdk.NativeMethodSample,jdk.CPUTimeSample",
                    named.path().c_str()},
      .inherited = {file.get()},
      .patience = kPatience};
  const auto status = os::run_program(program, [&](std::string_view some) -> Expected<void> {
    is_read = reader.feed(some);
    if (is_read) return {};
    return fail(ErrorCode::kLimit, "a program printed too much", 0);
  });
  if (!is_read) return reader.profile();
  if (!status && status.error().code == ErrorCode::kNotFound)
    return fail(ErrorCode::kUnsupported,
                "a JFR file, which the program jfr of a JDK reads, and PATH has no jfr. Way out: install "
                "openjdk-17-jdk-headless, or put the JDK's bin folder in PATH",
                0);
  if (!status) return Failure(status.error());
  if (*status != 0)
    return fail(ErrorCode::kMalformed, "jfr cannot read the recording. Way out: jfr summary FILE says why", 0);
  return reader.profile();
}

}  // namespace windlass::importer
