#include "agent/priority.h"

#include <sys/resource.h>

#include "process/readers.h"

namespace windlass::agent {

void raise_priority() {
  constexpr int kHighest = -20;
  if (getpriority(PRIO_PROCESS, 0) != 0) return;  // asked for otherwise
  (void)setpriority(PRIO_PROCESS, 0, kHighest);
  if (process::readers() != nullptr) process::readers()->set_priority(kHighest);
}

}  // namespace windlass::agent
