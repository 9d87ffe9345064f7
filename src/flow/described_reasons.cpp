#include "windlass/jit/describe.h"

namespace windlass {

std::string_view reason_text(Unproved::Reason reason) {
  switch (reason) {
    case Unproved::kNotReached: return "not reached from the entry";
    case Unproved::kUnknownJump: return "not reached, and a jump may lead anywhere";
    case Unproved::kDifferentFrames: return "reached with different frames";
    case Unproved::kFrameLost: return "no register leads to the caller's frame";
    case Unproved::kNotFollowed: return "no instruction that can be followed";
  }
  return "";
}

}  // namespace windlass
