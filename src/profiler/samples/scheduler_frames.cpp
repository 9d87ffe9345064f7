#include "profiler/samples/scheduler_frames.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "profiler/kernel/event_specs.h"
#include "profiler/samples/waker_frames.h"

namespace windlass::profiler {
namespace {

constexpr std::ptrdiff_t kMostFrames = 12;  // of the program, the tracepoint and the scheduler

enum class Part : std::uint8_t { kOther, kSwitch, kSchedule };

Part part_of(const profile::Profile& profile, const profile::Location& location) {
  if (location.module >= profile.modules.size() || !profile.modules[location.module].is_kernel) return Part::kOther;
  for (const profile::Line& line : location.lines) {
    const std::string_view name = profile.functions[line.function].name;
    if (name == "__schedule") return Part::kSwitch;
    if (name == "schedule") return Part::kSchedule;
  }
  return Part::kOther;
}

}  // namespace

void leave_out_scheduler(profile::Profile& profile) {
  const WakerFrames wakers(profile);
  std::vector<Part> parts;
  for (const profile::Location& location : profile.locations) parts.push_back(part_of(profile, location));
  for (profile::Sample& sample : profile.samples) {
    const std::string& event = profile.events[sample.event].name;
    if (event != kWaitEvent && event != kLockEvent) continue;
    auto& stack = sample.locations;
    const auto begin = stack.begin() + static_cast<std::ptrdiff_t>(wakers.count(sample));
    const auto end = begin + std::min<std::ptrdiff_t>(kMostFrames, stack.end() - begin);
    auto from = std::find_if(begin, end, [&](std::uint32_t at) { return parts[at] == Part::kSwitch; });
    if (from == end) continue;
    ++from;
    if (from != stack.end() && parts[*from] == Part::kSchedule) ++from;
    stack.erase(begin, from);
  }
}

}  // namespace windlass::profiler
