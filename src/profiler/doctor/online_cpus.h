// The CPUs that perf events are opened on.
#pragma once

#include <vector>

namespace windlass::profiler {

// CPUs that are online, from /sys/devices/system/cpu/online; all of sysconf's if that is unreadable.
[[nodiscard]] std::vector<int> online_cpus();

}  // namespace windlass::profiler
