// The way by which V8 leaves optimised code for good. Builtins_DeoptimizationEntry_* move the frame in which they are
// called from the stack into an object of V8's, word by word. Then C++ code makes of it the frames that go on
// (Deoptimizer::ComputeOutputFrames). Meanwhile only that object holds the function's return address and the caller's
// frame pointer. It is a FrameDescription, to which a Deoptimizer leads. A pointer to the Deoptimizer is the last word
// on the stack.
//
// v8/v8, src/builtins/x64/builtins-x64.cc, Generate_DeoptimizationEntry; src/deoptimizer/frame-description.h. The
// offsets of the fields are read in the builtin's own code.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "windlass/bytes.h"
#include "windlass/jit/describe.h"
#include "windlass_process_layout.h"

namespace windlass::runtimes::v8 {

struct Deoptimization {
  // Offsets into the builtin, in order. From the first on, the code's own return address is gone. Behind the second,
  // rcx holds the end of the frame. Behind the third, [rsp] holds the place where the Deoptimizer is kept. Behind the
  // fourth, sp is there. Behind the fifth, sp is at the frame's end. Behind the last, nothing is known.
  //
  // Before the first, the code takes the registers that it has pushed off the stack. There, sp is so far below that
  // address.
  struct Saved {
    std::uint32_t begin = 0, end = 0, above = 0;
  };
  std::vector<Saved> saved;
  std::uint32_t aligned = 0;  // from here to these, over a call, [rsp] has where sp was
  std::uint32_t left = 0, measured = 0, kept = 0, returned = 0, dropped = 0, end = 0;
  std::uint32_t input = 0, content = 0;  // Deoptimizer::input_, FrameDescription's words; its size comes first

  // Nothing: the code is not known to be of this kind.
  [[nodiscard]] static std::optional<Deoptimization> read(ByteView code, std::uint64_t address);

  // How its frame is left where C++ works, for the kernel side.
  [[nodiscard]] wl_held held() const {
    return {.input = static_cast<std::uint16_t>(input), .content = static_cast<std::uint16_t>(content), .there = 1};
  }
  // The DWARF expressions of its rows: [CFA - 8] is the Deoptimizer.
  [[nodiscard]] std::vector<std::uint8_t> expressions() const;
  // Puts rows there in the place of what was found by following the code. `expressions` stay where they are.
  void describe(ByteView expressions, Description& to) const;
};

}  // namespace windlass::runtimes::v8
