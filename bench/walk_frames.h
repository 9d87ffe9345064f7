// A stack of a given depth over a given number of distinct functions, all with frame pointers.
#pragma once

#include <cstddef>

namespace walk_frames {

inline constexpr unsigned kFunctions = 512;

struct Chain {
  unsigned left;      // frames still to come
  unsigned distinct;  // functions to take turns
  unsigned first;     // the lowest of them
  void (*leaf)(void* context);
  void* context;
};

void run(Chain& chain);

}  // namespace walk_frames
