// Memory of a process that goes on while it is read, and of which what was read is kept for a while.
#pragma once

#include <cstdint>

#include "windlass/walk.h"

namespace windlass {

class TimedMemory : public Memory {
 public:
  // The following reads are for an event at `time` (CLOCK_MONOTONIC, ns). What was read earlier does not serve them,
  // since the process has gone on. For example, a method may have been compiled and called.
  virtual void set_time(std::uint64_t time) const = 0;
};

}  // namespace windlass
