#include "cli/event_options.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "cli/durations.h"

namespace windlass::cli {
namespace {

using EventList = std::vector<profiler::EventSpec>;

// Chooses one of the events of waits by an option of its own.
void add_wait(EventList& events, const char* name, std::optional<std::uint64_t> shortest) {
  if (!shortest) return;
  auto wait = std::ranges::find(events, name, &profiler::EventSpec::name);
  if (wait == events.end()) wait = events.insert(events.end(), *profiler::parse_event(name));
  wait->shortest_wait = *shortest;
}

std::expected<void, std::string> add_wakers(EventList& events, const char* name, const char* option) {
  const auto wait = std::ranges::find(events, name, &profiler::EventSpec::name);
  if (wait == events.end())
    return std::unexpected(fmt::format("{} needs the event {}. Way out: --{}, too", option, name, name));
  wait->wakers = true;
  return {};
}

// What the events of waits can be chosen with; an error says what not.
std::expected<void, std::string> choose_waits(EventList& events, const EventArguments& arguments) {
  add_wait(events, profiler::kWaitEvent, arguments.off_cpu);
  add_wait(events, profiler::kLockEvent, arguments.lock);
  for (const auto& [wanted, name, option] : {std::tuple{arguments.wakers, profiler::kWaitEvent, "--wakers"},
                                             {arguments.lock_holders, profiler::kLockEvent, "--lock-holders"}})
    if (wanted)
      if (auto added = add_wakers(events, name, option); !added) return added;
  const auto waits = std::ranges::find(events, profiler::EventKind::kWait, &profiler::EventSpec::kind);
  const auto locks = std::ranges::find(events, profiler::EventKind::kLock, &profiler::EventSpec::kind);
  if (locks == events.end()) return {};
  if (waits != events.end() && waits->shortest_wait != locks->shortest_wait)
    return std::unexpected("--off-cpu and --lock have different times. Way out: one time for both");
  return {};
}

// A tracepoint takes a program once, whatever its filter.
bool is_same_tracepoint(const profiler::EventSpec& a, const profiler::EventSpec& b) {
  return a.kind == profiler::EventKind::kTracepoint && b.kind == a.kind && a.category == b.category &&
         a.point == b.point;
}

}  // namespace

std::expected<EventList, std::string> events_of(const EventArguments& arguments) {
  EventList events;
  for (const std::string& text : arguments.events) events.push_back(*profiler::parse_event(text));
  if (events.empty()) events.emplace_back();
  if (auto chosen = choose_waits(events, arguments); !chosen) return std::unexpected(std::move(chosen.error()));
  for (std::size_t i = 0; i < events.size(); ++i)
    for (std::size_t k = 0; k < i; ++k) {
      if (events[i].name == events[k].name)
        return std::unexpected(fmt::format("the event {} is chosen twice. Way out: once", events[i].name));
      if (is_same_tracepoint(events[i], events[k]))
        return std::unexpected(
            fmt::format("the tracepoint {}:{} is chosen twice. Way out: once, with the filters joined by ||",
                        events[i].category, events[i].point));
    }
  return events;
}

void add_event_options(CLI::App& command, EventArguments& to) {
  command
      .add_option("-e,--event", to.events,
                  "what to take samples of: cpu, off-cpu, lock, page-faults, context-switches, CATEGORY:TRACEPOINT, "
                  "uprobe:FILE:FUNCTION and others; EVENT@N: once in N (repeatable)")
      ->default_str("cpu")
      ->check([](const std::string& text) {
        const auto event = profiler::parse_event(text);
        return event ? std::string() : event.error();
      })
      ->type_name("EVENT")
      ->allow_extra_args(false);  // behind it may stand the command
  add_optional_duration(command, "--off-cpu", to.off_cpu,
                        "also where threads wait, and for how long; --off-cpu=10ms: waits of at least so long");
  command.add_flag("--wakers", to.wakers, "with --off-cpu: also which thread ends a wait, and with which stack");
  add_optional_duration(command, "--lock", to.lock,
                        "also where threads wait for locks; --lock=1ms: waits of at least so long");
  command.add_flag("--lock-holders", to.lock_holders,
                   "with --lock: also which thread holds the lock, and with which stack it lets go");
}

}  // namespace windlass::cli
