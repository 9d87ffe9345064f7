// What a search for the ways out of code comes to.
#pragma once

#include <cstdint>
#include <optional>

#include "windlass/frame_row.h"

namespace windlass::flow {

// Ways out, best first.
enum class Way : std::uint8_t {
  kReturn,      // a return, or a jump to another function for sure, with the calling convention kept
  kOddReturn,   // a return that does not keep it
  kTail,        // a jump to an unknown place with a return address where a call would have put it
  kFrameSetUp,  // the frame that the code sets up, from the registers before
  kNone,
};

struct Found {
  Way way = Way::kNone;
  unsigned calls = 0;
  bool forgot = false;   // more was stored than could be kept, where the row says that something was saved
  bool jumped = false;   // to another function, which returns if it keeps the calling convention
  bool entered = false;  // the middle of a function that unwind information describes
  FrameRow row;
  std::optional<FrameRow> odd;  // of an odd return that was met before the return
};

// What else an exploration has seen.
struct Sights {
  bool halted_behind_call = false;
  // addresses memory below it by the frame pointer, or makes sp of it; before changing it
  bool addresses_frame = false;
  bool uses_frame_pointer = false;  // before it changes it
  bool writes_frame_pointer = false;
  bool any_code = false;
};

}  // namespace windlass::flow
