// The text that `perf script` prints: a line about each sample, then a line a frame, innermost first, then an empty
// line.
//
//   app  1081/1082 [000] 38095.476317:    1001001 cpu-clock:u:
//                1d29 spin+0x39 (/usr/bin/app)
//                1686 main+0x4d6 (/usr/bin/app)
//
// Without call graphs, the one frame stands behind the event:
//
//              app  1081 38095.476317:    1001001 cpu-clock:      1d29 spin+0x39 (/usr/bin/app)
//
// `-F +misc` adds letters before the time. `--show-mmap-events` and the like add lines about records, for example
// "app 1081 38095.476317: PERF_RECORD_MMAP2 ...", which are no samples.
//
// Inlined functions have lines with "(inlined)", before the function that they are in. `-F +srcline` adds "  app.c:12"
// behind a frame.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>

#include "profiler/import/import.h"

namespace windlass::importer {
namespace {

using profile::kNone;

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_space(char c) { return c == ' ' || c == '\t'; }

template <typename Number>
std::optional<Number> number(std::string_view text, int base = 10) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// What comes next in a line.
std::string_view take_word(std::string_view& text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  const auto end = std::min(text.find_first_of(" \t"), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

// "38095.476317:"
bool is_time(std::string_view word) {
  return word.size() > 2 && word.ends_with(':') && is_digit(word.front()) && word.find('.') != std::string_view::npos &&
         std::ranges::all_of(word.substr(0, word.size() - 1), [](char c) { return is_digit(c) || c == '.'; });
}

// "U", "K", "S": how the processor ran, and why a thread left it (perf-script(1), misc).
bool is_misc(std::string_view word) {
  constexpr std::size_t kMost = 3;
  return !word.empty() && word.size() <= kMost &&
         std::ranges::all_of(word, [](char c) { return std::string_view("KUHGgMESDNp?").contains(c); });
}

// Its nanoseconds; nothing where they do not fit.
std::optional<std::uint64_t> time_of(std::string_view word) {
  constexpr std::size_t kDigits = 9;
  const auto point = word.find('.');
  std::string fraction(word.substr(point + 1, word.size() - point - 2));
  fraction.resize(kDigits, '0');
  const auto seconds = number<std::uint32_t>(word.substr(0, point)), rest = number<std::uint32_t>(fraction);
  if (!seconds || !rest) return std::nullopt;
  return std::uint64_t{*seconds} * 1'000'000'000 + *rest;
}

struct Head {
  std::string_view comm;
  std::uint32_t pid = 0, tid = 0;
  std::optional<std::uint64_t> time;
};

// "1081", "1081/1082"
bool parse_ids(std::string_view word, Head& head) {
  const auto slash = word.find('/');
  const auto first = number<std::uint32_t>(word.substr(0, slash));
  const auto second = slash == std::string_view::npos ? first : number<std::uint32_t>(word.substr(slash + 1));
  if (!first || !second) return false;
  head.pid = *first;
  head.tid = *second;
  return true;
}

// What `line` begins with, up to the time; what follows that is left in `rest`. The name of a thread may have spaces:
// the number before the time, or before "[cpu]", is the thread's.
std::optional<Head> parse_head(std::string_view line, std::string_view& rest) {
  Head head;
  rest = line;
  for (std::string_view word = take_word(rest); !word.empty(); word = take_word(rest)) {
    if (word.data() == line.data() || !parse_ids(word, head)) continue;
    std::string_view behind = rest;
    std::string_view next = take_word(behind);
    if (next.starts_with('[') && next.ends_with(']')) next = take_word(behind);
    if (is_misc(next)) next = take_word(behind);
    if (!is_time(next)) continue;
    head.time = time_of(next);
    head.comm = line.substr(0, static_cast<std::size_t>(word.data() - line.data()));
    while (!head.comm.empty() && is_space(head.comm.back())) head.comm.remove_suffix(1);
    rest = behind;
    return head;
  }
  return std::nullopt;
}

class PerfScriptReader {
 public:
  PerfScriptReader(std::string_view text, const Limits& limits) : text_(text), builder_(limits) {}

  Expected<profile::Profile> read() {
    for (std::size_t at = 0; at < text_.size() && builder_.has_room();) {
      const std::size_t end = std::min(text_.find('\n', at), text_.size());
      std::string_view line = text_.substr(at, end - at);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (!take(line)) return fail(ErrorCode::kMalformed, "neither a sample nor a frame of perf script's text", at);
      at = end + 1;
    }
    end_sample();
    if (builder_.edit().events.empty()) return fail(ErrorCode::kMalformed, "no sample of perf script in the file", 0);
    builder_.edit().ends_known = false;
    // The event of most samples is shown first: the text does not say in which order events were given.
    builder_.sort_events([this](std::uint32_t number) { return ~counts_[number]; });
    return builder_.profile();
  }

 private:
  bool take(std::string_view line) {
    if (line.find_first_not_of(" \t") == std::string_view::npos) {
      end_sample();
      return true;
    }
    if (line.front() == '#') return true;
    const bool is_indented = is_space(line.front()), is_frame = line.front() == '\t';
    std::string_view rest = line;
    while (is_space(rest.front())) rest.remove_prefix(1);  // names are padded on the left
    if ((!is_frame || !(open_ || is_record_)) && take_head(rest)) return true;
    return is_indented && (is_record_ || (open_ && take_frame(line)));
  }

  bool take_head(std::string_view line) {
    std::string_view rest;
    const auto head = parse_head(line, rest);
    if (!head) return false;
    end_sample();
    std::string_view word = take_word(rest);
    const auto period = number<std::uint64_t>(word);
    if (period) word = take_word(rest);
    if (word.ends_with(':')) word.remove_suffix(1);
    is_record_ = word.starts_with("PERF_RECORD_");
    if (is_record_) return true;
    open_ = true;
    time_ = head->time;
    sample_ = {.pid = head->pid, .tid = head->tid, .comm = builder_.string(head->comm)};
    const bool is_clock = word.starts_with("cpu-clock") || word.starts_with("task-clock");
    sample_.event = event(word.empty() ? "samples" : word, is_clock && period);
    sample_.value = period.value_or(1);
    sample_.count = is_clock ? 1 : sample_.value;
    ++counts_[sample_.event];
    return take_only_frame(rest);
  }

  // "1d29 spin+0x39 (/usr/bin/app)", or an address that the event is about before that. Of a tracepoint: its fields.
  bool take_only_frame(std::string_view text) {
    if (!text.ends_with(')')) return true;
    std::string_view rest = text;
    const auto is_address = [](std::string_view word) { return number<std::uint64_t>(word, 16).has_value(); };
    if (!is_address(take_word(rest))) return true;
    std::string_view behind = rest;
    const bool two = is_address(take_word(behind)) && !take_word(behind).starts_with('(');
    return take_frame(two ? rest : text);
  }

  std::uint32_t event(std::string_view name, bool is_clock) {
    const auto known = events_.find(name);
    if (known != events_.end()) return known->second;
    const std::string text(name);
    const std::uint32_t number = builder_.event(
        is_clock ? profile::Event{.name = text} : profile::Event{.name = text, .unit = "count", .counted = text});
    counts_.push_back(0);
    return events_.emplace(text, number).first->second;
  }

  // "1d29 spin+0x39 (/usr/bin/app)"
  bool take_frame(std::string_view line) {
    std::string_view rest = line;
    const std::string_view word = take_word(rest);
    const auto address = number<std::uint64_t>(word, 16);
    if (!address) return take_source_line(line);
    end_frame();
    while (!rest.empty() && is_space(rest.front())) rest.remove_prefix(1);
    const std::string_view file = take_file(rest);
    std::string_view name = rest.substr(0, rest.rfind("+0x"));
    while (!name.empty() && is_space(name.back())) name.remove_suffix(1);
    address_ = *address;
    has_frame_ = true;
    if (!name.empty() && name != "[unknown]") lines_.push_back({builder_.function(name), 0});
    if (file == "inlined") return true;
    module_ = file.empty() || file == "[unknown]" ? kNone : builder_.module(module_path(file));
    is_whole_ = true;
    return true;
  }
  static std::string_view module_path(std::string_view file) {
    return file.starts_with("[kernel") || file.starts_with("[guest.kernel") ? "[kernel]" : file;
  }
  // "(/usr/bin/app)", which may have brackets itself, from the end of `rest`.
  static std::string_view take_file(std::string_view& rest) {
    if (!rest.ends_with(')')) return {};
    std::size_t depth = 0;
    for (std::size_t i = rest.size(); i-- > 0;) {
      depth += rest[i] == ')' ? 1 : 0;
      if (rest[i] != '(' || --depth != 0) continue;
      const std::string_view file = rest.substr(i + 1, rest.size() - i - 2);
      rest = rest.substr(0, i);
      return file;
    }
    return {};
  }
  // "  app.c:12"
  bool take_source_line(std::string_view line) {
    const auto colon = line.rfind(':');
    if (!has_frame_ || colon == std::string_view::npos) return false;
    const auto at = number<std::uint32_t>(line.substr(colon + 1));
    if (at && !lines_.empty()) {
      lines_.back().line = *at;
      profile::Function& function = builder_.edit().functions[lines_.back().function];
      const std::size_t begin = line.find_first_not_of(" \t");
      if (function.file.empty()) function.file = line.substr(begin, colon - begin);
    }
    return true;
  }

  // Inlined functions stay until the one that they are in has come.
  void end_frame() {
    if (!is_whole_) return;
    sample_.locations.push_back(builder_.location(module_, address_, lines_));
    lines_.clear();
    is_whole_ = has_frame_ = false;
  }
  void end_sample() {
    if (!open_) return;
    is_whole_ |= has_frame_;
    end_frame();
    builder_.add(sample_, time_);
    open_ = false;
    module_ = kNone;
  }

  std::string_view text_;
  ProfileBuilder builder_;
  std::map<std::string, std::uint32_t, std::less<>> events_;
  profile::Sample sample_;  // at hand, if `open_`
  std::optional<std::uint64_t> time_;
  std::vector<profile::Line> lines_;  // of the frame at hand, innermost first
  std::uint64_t address_ = 0;
  std::uint32_t module_ = kNone;
  std::vector<std::uint64_t> counts_;  // samples of each event
  bool is_record_ = false;             // the line at hand is about a record, and no sample
  bool open_ = false, has_frame_ = false, is_whole_ = false;
};

}  // namespace

Expected<profile::Profile> read_perf_script(std::string_view text, const Limits& limits) {
  return PerfScriptReader(text, limits).read();
}

}  // namespace windlass::importer
