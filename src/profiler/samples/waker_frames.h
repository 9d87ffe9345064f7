// How a wait and its waker stand in one stack: the frames of the wait, a frame that names the waker, and then the
// waker's frames as if they were called from there. Every view shows that as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "profiler/profile/profile.h"

namespace windlass::profiler {

inline constexpr const char* kWakerModule = "[waker]";       // of the frame between
inline constexpr std::string_view kWokenBy = "[woken by ";   // begins its name
inline constexpr std::string_view kHeldBy = "[held by ";     // the same for a lock: its holder wakes
inline constexpr const char* kAnInterrupt = "an interrupt";  // that wakes

class WakerFrames {
 public:
  explicit WakerFrames(const profile::Profile& profile);
  // How many frames of the sample are the waker's, and the one that names it: the first ones. 0: there is no waker.
  [[nodiscard]] std::size_t count(const profile::Sample& sample) const;

 private:
  const profile::Profile& profile_;
  std::uint32_t module_ = profile::kNone;
};

// A frame of this name in a profile that has such frames. Returns its location.
[[nodiscard]] std::uint32_t add_waker_frame(profile::Profile& profile, const std::string& name);

// Takes the kernel's frames for waking off the wakers, and what an interrupt interrupted: that wakes nobody. For a
// profile whose kernel frames have names. O(samples).
void leave_out_waking(profile::Profile& profile);

}  // namespace windlass::profiler
