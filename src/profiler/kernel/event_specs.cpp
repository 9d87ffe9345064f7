#include "profiler/kernel/event_specs.h"

#include <linux/perf_event.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace windlass::profiler {
namespace {

struct Counter {
  const char* name;
  std::uint32_t type;
  std::uint64_t config;
  std::uint64_t period;  // unless told otherwise
};
constexpr std::uint64_t kMostArguments = 6;                    // of x86-64's functions; AArch64's have two more
constexpr std::uint64_t kOften = 1'000'000, kRarely = 10'000;  // of a processor's events
constexpr Counter kCounters[] = {
    {"page-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS, 1},
    {"minor-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MIN, 1},
    {"major-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MAJ, 1},
    {"context-switches", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES, 1},
    {"cpu-migrations", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_MIGRATIONS, 1},
    {"alignment-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_ALIGNMENT_FAULTS, 1},
    {"emulation-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_EMULATION_FAULTS, 1},
    {"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, kOften},
    {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, kOften},
    {"cache-references", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES, kRarely},
    {"cache-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES, kRarely},
    {"branches", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS, kOften},
    {"branch-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES, kRarely},
    {"bus-cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BUS_CYCLES, kOften},
    {"stalled-cycles-frontend", PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_FRONTEND, kOften},
    {"stalled-cycles-backend", PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_BACKEND, kOften},
    {"ref-cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_REF_CPU_CYCLES, kOften},
};

std::optional<std::uint64_t> number_in(std::string_view text, int base = 10) {
  if (base == 10 && text.starts_with("0x")) return number_in(text.substr(2), 16);
  std::uint64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (read.ec != std::errc{} || read.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

// The ":" behind the file's name in "FILE:FUNCTION". Both may have colons of their own, and a function of Go has
// slashes.
std::size_t end_of_file_name(std::string_view text) {
  for (std::size_t mark = text.find(':'); mark != std::string_view::npos; mark = text.find(':', mark + 1))
    if (mark != 0 && access(std::string(text.substr(0, mark)).c_str(), F_OK) == 0) return mark;
  const std::size_t slash = text.rfind('/');
  return text.find(':', slash == std::string_view::npos ? 0 : slash);
}

// "FUNCTION[+OFFSET]". `form`: what the whole event looks like.
std::expected<EventSpec, std::string> with_place(EventSpec spec, std::string_view function, std::string_view form) {
  if (function.empty()) return std::unexpected(fmt::format("{} names no function. Way out: {}", spec.name, form));
  const std::size_t plus = function.rfind('+');
  if (plus != std::string_view::npos && plus != 0 && plus + 1 != function.size()) {  // not operator+
    const auto offset = number_in(function.substr(plus + 1));
    if (spec.returns)
      return std::unexpected(fmt::format("{}: a function returns as a whole. Way out: {} without +", spec.name, form));
    if (!offset)
      return std::unexpected(
          fmt::format("{} is no place in a function. Way out: a number of bytes behind +, as {}+16", spec.name, form));
    spec.offset = *offset;
    function = function.substr(0, plus);
  }
  spec.function = function;
  return spec;
}

// ":argN" at the end; not "::argN", which is a name of C++.
constexpr std::string_view kArgument = ":arg";
std::size_t argument_at(std::string_view text) {
  const std::size_t mark = text.rfind(kArgument);
  if (mark == std::string_view::npos || mark == 0 || text[mark - 1] == ':') return text.size();
  return number_in(text.substr(mark + kArgument.size())) ? mark : text.size();
}

// "FILE:FUNCTION[+OFFSET][:argN]"
std::expected<EventSpec, std::string> parse_probe(std::string_view text, bool returns) {
  EventSpec spec{.kind = EventKind::kProbe, .name = std::string(text), .returns = returns};
  text.remove_prefix(text.find(':') + 1);
  if (const std::size_t at = argument_at(text); at != text.size()) {
    const auto number = number_in(text.substr(at + kArgument.size()));
    if (returns)
      return std::unexpected(
          fmt::format("{}: the arguments are gone when a function returns. Way out: uprobe:{}", spec.name, text));
    if (*number < 1 || *number > kMostArguments)
      return std::unexpected(fmt::format("{}: only {} arguments are in registers. Way out: {}1 to {}{}", spec.name,
                                         kMostArguments, kArgument, kArgument, kMostArguments));
    spec.argument = static_cast<unsigned>(*number);
    text = text.substr(0, at);
  }
  const std::size_t mark = end_of_file_name(text);
  const bool names_both = mark != std::string_view::npos && mark != 0;
  if (names_both) spec.file = text.substr(0, mark);
  return with_place(std::move(spec), names_both ? text.substr(mark + 1) : std::string_view(),
                    returns ? "uretprobe:FILE:FUNCTION" : "uprobe:FILE:FUNCTION");
}

// "FUNCTION[+OFFSET]"
std::expected<EventSpec, std::string> parse_kernel_probe(std::string_view text, bool returns) {
  EventSpec spec{.kind = EventKind::kKernelProbe, .name = std::string(text), .returns = returns};
  return with_place(std::move(spec), text.substr(text.find(':') + 1),
                    returns ? "kretprobe:FUNCTION" : "kprobe:FUNCTION");
}

// "FILE:PROVIDER:NAME"
std::expected<EventSpec, std::string> parse_static_probe(std::string_view text) {
  EventSpec spec{.kind = EventKind::kProbe, .name = std::string(text)};
  text.remove_prefix(text.find(':') + 1);
  const std::size_t last = text.rfind(':');
  const std::size_t first = last == 0 || last == std::string_view::npos ? last : text.rfind(':', last - 1);
  if (first == std::string_view::npos || first == 0 || first + 1 == last || last + 1 == text.size())
    return std::unexpected(fmt::format("{} names no static probe. Way out: usdt:FILE:PROVIDER:NAME", spec.name));
  spec.file = text.substr(0, first);
  spec.category = text.substr(first + 1, last - first - 1);
  spec.point = text.substr(last + 1);
  return spec;
}

// A tracepoint of the kernel: "sched:sched_process_fork", "sched:sched_switch/prev_prio < 100/".
std::expected<EventSpec, std::string> parse_tracepoint(std::string_view text) {
  const auto is_name = [](std::string_view part) {
    return !part.empty() &&
           std::ranges::all_of(part, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
  };
  EventSpec spec{.kind = EventKind::kTracepoint, .name = std::string(text)};
  if (const std::size_t slash = text.find('/');
      slash != std::string_view::npos && slash + 2 < text.size() && text.ends_with('/')) {
    spec.filter = text.substr(slash + 1, text.size() - slash - 2);
    text = text.substr(0, slash);
  }
  const std::size_t mark = text.find(':');
  spec.category = text.substr(0, mark);
  spec.point = text.substr(mark + 1);
  if (is_name(spec.category) && is_name(spec.point)) return spec;
  return std::unexpected(fmt::format(
      "{} is no tracepoint. Way out: CATEGORY:NAME or CATEGORY:NAME/FILTER/, as sched:sched_switch/prev_prio < 100/",
      spec.name));
}

}  // namespace

std::vector<std::string> plain_events() {
  std::vector<std::string> names{"cpu", kWaitEvent, kLockEvent};
  for (const Counter& counter : kCounters) names.emplace_back(counter.name);
  return names;
}

std::expected<EventSpec, std::string> parse_event(std::string_view text) {
  if (text == "cpu") return EventSpec{};
  if (text == kWaitEvent) return EventSpec{.kind = EventKind::kWait, .name = kWaitEvent};
  if (text == kLockEvent) return EventSpec{.kind = EventKind::kLock, .name = kLockEvent};
  for (const bool returns : {false, true})
    if (text.starts_with(returns ? "uretprobe:" : "uprobe:")) return parse_probe(text, returns);
  for (const bool returns : {false, true})
    if (text.starts_with(returns ? "kretprobe:" : "kprobe:")) return parse_kernel_probe(text, returns);
  if (text.starts_with("usdt:")) return parse_static_probe(text);
  if (text.find(':') != std::string_view::npos) return parse_tracepoint(text);
  const std::size_t mark = std::min(text.find('@'), text.size());
  const std::string_view name = text.substr(0, mark);
  if (mark != text.size() && (name == "cpu" || name == kWaitEvent || name == kLockEvent))
    return std::unexpected(fmt::format("{} is not counted. Way out: {} without @", name, name));
  const auto* const counter = std::ranges::find(kCounters, name, &Counter::name);
  if (counter == std::end(kCounters))
    return std::unexpected(
        fmt::format("there is no event {}. Way out: one of {}, or CATEGORY:TRACEPOINT, kprobe:FUNCTION, "
                    "kretprobe:FUNCTION, uprobe:FILE:FUNCTION, uretprobe:FILE:FUNCTION, usdt:FILE:PROVIDER:NAME",
                    text, fmt::join(plain_events(), ", ")));
  EventSpec spec{.kind = EventKind::kCounter,
                 .name = counter->name,
                 .period = counter->period,
                 .type = counter->type,
                 .config = counter->config};
  if (mark == text.size()) return spec;
  const auto period = number_in(text.substr(mark + 1));
  if (!period || *period == 0)
    return std::unexpected(fmt::format("{} has no period. Way out: a number behind @, as {}@1000", text, spec.name));
  spec.period = *period;
  spec.period_is_chosen = true;
  return spec;
}

profile::Event profile_event(const EventSpec& spec, unsigned frequency) {
  switch (spec.kind) {
    case EventKind::kCpuClock: return {.period = 1'000'000'000 / std::max(frequency, 1U)};
    case EventKind::kWait: return {.name = spec.name, .unit = "nanoseconds", .counted = "waits"};
    case EventKind::kLock: return {.name = spec.name, .unit = "nanoseconds", .counted = "contentions"};
    case EventKind::kProbe:
      if (spec.argument != 0) return {.name = spec.name, .unit = "units", .counted = spec.name + ":calls"};
      [[fallthrough]];
    default: return {.name = spec.name, .unit = "count", .counted = spec.name};
  }
}

}  // namespace windlass::profiler
