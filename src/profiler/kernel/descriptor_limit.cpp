#include "profiler/kernel/descriptor_limit.h"

#include <algorithm>

namespace windlass::profiler {

rlim_t raise_descriptor_limit(rlim_t most) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, most));
  setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

}  // namespace windlass::profiler
