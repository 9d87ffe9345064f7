#include "agent/priority.h"

#include <sys/resource.h>

namespace windlass::agent {

void raise_priority() {
  constexpr int kHighest = -20;
  if (getpriority(PRIO_PROCESS, 0) == 0) (void)setpriority(PRIO_PROCESS, 0, kHighest);  // 0: not asked for otherwise
}

}  // namespace windlass::agent
