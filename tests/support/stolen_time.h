// How much time a hypervisor took from this machine's processors.
#pragma once

#include <unistd.h>

#include <fstream>
#include <string>

namespace windlass::test {

// In ns, of all processors, since the machine started. It passes on the wall clock. A thread's CPU time leaves it out
// on some kernels, though the thread was on its CPU. /proc/stat, proc(5).
inline double stolen_ns() {
  std::ifstream stat("/proc/stat");
  std::string name;
  double ticks = 0;
  stat >> name;
  for (int field = 0; field < 8; ++field) stat >> ticks;  // user, nice, system, idle, iowait, irq, softirq, steal
  return stat ? ticks * 1e9 / static_cast<double>(::sysconf(_SC_CLK_TCK)) : 0;
}

}  // namespace windlass::test
