#include "profiler/processes/priority.h"

#include <sys/resource.h>

#include "os/readers.h"

namespace windlass::profiler {

void raise_priority() {
  constexpr int kHighest = -20;
  if (getpriority(PRIO_PROCESS, 0) != 0) return;  // asked for otherwise
  (void)setpriority(PRIO_PROCESS, 0, kHighest);
  if (os::readers() != nullptr) os::readers()->set_priority(kHighest);
}

}  // namespace windlass::profiler
