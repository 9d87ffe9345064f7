#include "profiler/samples/waker_frames.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include <fmt/format.h>

#include "profiler/profile/interrupts.h"

namespace windlass::profiler {
namespace {

enum class WakingPart : std::uint8_t { kOther, kWakes, kInterrupts };

WakingPart waking_part_of(const profile::Profile& profile, const profile::Location& location) {
  if (location.module >= profile.modules.size() || !profile.modules[location.module].is_kernel)
    return WakingPart::kOther;
  for (const profile::Line& line : location.lines) {
    const std::string_view name = profile.functions[line.function].name;
    if (name == "try_to_wake_up") return WakingPart::kWakes;
    if (profile::enters_interrupt(name)) return WakingPart::kInterrupts;
  }
  return WakingPart::kOther;
}

}  // namespace

WakerFrames::WakerFrames(const profile::Profile& profile) : profile_(profile) {
  const auto module = std::ranges::find(profile.modules, kWakerModule, &profile::Module::path);
  if (module != profile.modules.end()) module_ = static_cast<std::uint32_t>(module - profile.modules.begin());
}

std::size_t WakerFrames::count(const profile::Sample& sample) const {
  if (module_ == profile::kNone) return 0;
  std::size_t frames = 0;
  for (const std::uint32_t at : sample.locations)
    if (++frames; profile_.locations[at].module == module_) return frames;
  return 0;
}

std::uint32_t add_waker_frame(profile::Profile& profile, const std::string& name) {
  const auto module = std::ranges::find(profile.modules, kWakerModule, &profile::Module::path);
  const auto function = static_cast<std::uint32_t>(profile.functions.size());
  const auto location = static_cast<std::uint32_t>(profile.locations.size());
  profile.functions.push_back({.name = name, .system_name = name});
  profile.locations.push_back({.module = static_cast<std::uint32_t>(module - profile.modules.begin()),
                               .address = location,
                               .lines = {{.function = function}}});
  return location;
}

void leave_out_waking(profile::Profile& profile) {
  const WakerFrames wakers(profile);
  std::vector<WakingPart> parts;
  for (const profile::Location& location : profile.locations) parts.push_back(waking_part_of(profile, location));
  std::uint32_t an_interrupt = profile::kNone;  // the frame
  for (profile::Sample& sample : profile.samples) {
    std::ptrdiff_t frames = static_cast<std::ptrdiff_t>(wakers.count(sample)) - 1;  // of the waker
    if (frames < 0) continue;
    auto& stack = sample.locations;
    const auto is = [&](WakingPart part) { return [&parts, part](std::uint32_t at) { return parts[at] == part; }; };
    const auto interrupted =
        std::find_if(std::make_reverse_iterator(stack.begin() + frames), stack.rend(), is(WakingPart::kInterrupts))
            .base();
    if (interrupted != stack.begin()) {
      if (an_interrupt == profile::kNone)
        an_interrupt = add_waker_frame(profile, fmt::format("{}{}]", kWokenBy, kAnInterrupt));
      stack[static_cast<std::size_t>(frames)] = an_interrupt;
      const auto kept = interrupted - stack.begin();
      stack.erase(interrupted, stack.begin() + frames);
      frames = kept;
    }
    const auto wakes = std::find_if(stack.begin(), stack.begin() + frames, is(WakingPart::kWakes));
    if (wakes != stack.begin() + frames) stack.erase(stack.begin(), wakes + 1);
  }
}

}  // namespace windlass::profiler
