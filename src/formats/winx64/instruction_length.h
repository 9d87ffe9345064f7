// How long instructions are, and whether one begins at an address: all that finding epilogues asks of x86-64 code.
// Zydis, which everything else uses, decodes far more and takes 15 times as long; a test compares the two at every byte
// of the corpora against it. Source: Intel SDM volume 2, chapter 2 and appendix A (opcode maps); for XOP and 3DNow!,
// AMD APM volume 3.
#pragma once

#include <cstdint>

#include "windlass/bytes.h"

namespace windlass::winx64 {

// Bytes of the instruction that `code` begins with; 0: none, or it is cut off. What processors do not have, but length
// can be said of, has a length all the same. Never reads past the view.
[[nodiscard]] unsigned instruction_length(ByteView code);

// Does an instruction begin at a place of a piece of code?
class Boundaries {
 public:
  // An instruction begins where `code` does.
  explicit Boundaries(ByteView code) : code_(code) {}

  enum class Answer : std::uint8_t {
    kNo,    // certainly not, as long as there is no data among the code just before
    kYes,   // likewise
    kOpen,  // the code before can be read both ways
  };
  // Of any 15 consecutive bytes one begins an instruction. So if decoding from each of 15 bytes leads to the same
  // answer, that answer is right. Decoding from different bytes falls into step within a few instructions, so such 15
  // bytes are near. Constant. `at` < size.
  [[nodiscard]] Answer begins(std::uint32_t at);

 private:
  ByteView code_;
  std::uint32_t known_ = 0;  // an instruction begins here
};

}  // namespace windlass::winx64
