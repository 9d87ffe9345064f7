#include "profiler/doctor/online_cpus.h"

#include <unistd.h>

#include <fstream>

namespace windlass::profiler {

std::vector<int> online_cpus() {
  constexpr int kMaxCpus = 8192;
  std::vector<int> cpus;
  std::ifstream file("/sys/devices/system/cpu/online");
  int first = 0;
  while (file >> first) {
    int last = first;
    if (file.peek() == '-') {
      file.get();
      file >> last;
    }
    for (int cpu = first; cpu <= last && cpu < kMaxCpus; ++cpu) cpus.push_back(cpu);
    if (file.peek() == ',') file.get();
  }
  if (cpus.empty())
    for (int cpu = 0; cpu < sysconf(_SC_NPROCESSORS_ONLN); ++cpu) cpus.push_back(cpu);
  return cpus;
}

}  // namespace windlass::profiler
