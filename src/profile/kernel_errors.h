// What the kernel refuses, in words that name the way out.
#pragma once

#include <string>

#include "profile/kernel_side.h"

namespace windlass::profile {

// While alive, libbpf's messages go here instead of stderr (process-wide; one at a time).
class LibbpfLog {
 public:
  LibbpfLog();
  ~LibbpfLog();
  LibbpfLog(const LibbpfLog&) = delete;
  LibbpfLog& operator=(const LibbpfLog&) = delete;
  // The last messages, at most a few KiB.
  [[nodiscard]] std::string text() const;
};

[[nodiscard]] SystemError explain_load_error(int error, const std::string& log);
[[nodiscard]] SystemError explain_perf_error(int error, unsigned frequency);

}  // namespace windlass::profile
