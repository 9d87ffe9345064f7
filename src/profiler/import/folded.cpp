// Folded stacks, as flamegraph.pl reads them: "thread;root;...;leaf 12", one stack a line.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "profiler/import/import.h"
#include "windlass_ends.h"

namespace windlass::importer {
namespace {

using profile::kNone;

// As write_folded() writes it. Others' words are frames.
std::optional<std::uint8_t> end_of(std::string_view name) {
  constexpr std::string_view kBegin = "[truncated: ";
  if (!name.starts_with(kBegin) || !name.ends_with(']')) return std::nullopt;
  name = name.substr(kBegin.size(), name.size() - kBegin.size() - 1);
  for (std::uint8_t end = 0; end < WL_END_COUNT; ++end)
    if (profile::is_truncated(end) && name == profile::end_text(end)) return end;
  return std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return text;
}

struct Line {
  std::string_view stack, unit;
  std::uint64_t value = 0;
};

// "a;b 12", "a;b 12 [ms]".
std::optional<Line> parse(std::string_view text) {
  Line line;
  text = trimmed(text);
  if (text.ends_with(']')) {
    const auto open = text.rfind(" [");
    if (open != std::string_view::npos) {
      const std::string_view before = trimmed(text.substr(0, open));
      if (!before.empty() && std::isdigit(static_cast<unsigned char>(before.back())) != 0) {
        line.unit = text.substr(open + 2, text.size() - open - 3);
        text = before;
      }
    }
  }
  const auto space = text.find_last_of(" \t");
  if (space == std::string_view::npos || space == 0) return std::nullopt;
  const std::string_view number = text.substr(space + 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), line.value);
  if (error != std::errc() || end != number.data() + number.size()) return std::nullopt;
  line.stack = trimmed(text.substr(0, space));
  if (line.stack.empty()) return std::nullopt;
  return line;
}

}  // namespace

Expected<profile::Profile> read_folded(std::string_view text, const Limits& limits) {
  ProfileBuilder builder(limits);
  std::string_view unit;
  bool ends_known = false;
  for (std::size_t at = 0; at < text.size() && builder.has_room();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view content = trimmed(text.substr(at, end - at));
    const std::size_t where = at;
    at = end + 1;
    if (content.empty() || content.starts_with('#')) continue;
    const auto line = parse(content);
    if (!line) return fail(ErrorCode::kMalformed, "a line is not a stack and a number", where);
    profile::Sample sample{.count = line->value, .value = line->value};
    if (builder.edit().events.empty()) {
      unit = line->unit;
      const bool counts = unit.empty() || unit == "count" || unit == "samples";
      (void)builder.event(counts ? profile::Event{.name = "samples", .unit = "count"}
                                 : profile::Event{.name = "value", .unit = std::string(unit)});
    }
    if (line->unit != unit) return fail(ErrorCode::kMalformed, "a line has another unit than the first one", where);
    if (builder.edit().events[0].unit != "count") sample.count = 1;
    std::vector<std::string_view> names;
    for (std::size_t from = 0; from <= line->stack.size();) {
      const std::size_t semicolon = std::min(line->stack.find(';', from), line->stack.size());
      const std::string_view name = line->stack.substr(from, semicolon - from);
      names.push_back(name.empty() ? "?" : name);
      from = semicolon + 1;
    }
    sample.comm = builder.string(names.front());
    std::size_t first = 1;
    if (names.size() > 1)
      if (const auto truncated = end_of(names[1])) {
        ends_known = true;
        sample.end = *truncated;
        first = 2;
      }
    for (std::size_t i = names.size(); i-- > first;) {
      const profile::Line named{builder.function(names[i]), 0};
      sample.locations.push_back(builder.location(kNone, 0, {&named, 1}));
    }
    builder.add(sample);
  }
  if (builder.edit().events.empty()) return fail(ErrorCode::kMalformed, "no folded stack in the file", 0);
  builder.edit().ends_known = ends_known;
  return builder.profile();
}

}  // namespace windlass::importer
