// What a thread waited for, in words.
#pragma once

#include <cstdint>
#include <string>

namespace windlass::profiler {

inline constexpr const char* kWaitReasonLabel = "reason";

// The text of a wl_wait_reason: "preempted", "page fault", "I/O", "stopped", else the name of the system call, or
// "system call N" for one that hardly waits.
[[nodiscard]] std::string wait_reason(std::uint16_t reason);

}  // namespace windlass::profiler
