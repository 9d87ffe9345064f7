// Unwind codes in words.
#pragma once

#include <bit>
#include <iterator>
#include <string>

#include "formats/winarm64/read.h"

namespace windlass::winarm64 {

// The bytes of a record at which a code starts that the prologue or an epilogue reaches. Epilogues share codes, and
// behind the last `end` there is padding, so neither "all bytes" nor "one sequence after another" lists them.
class CodeSet {
 public:
  explicit CodeSet(const UnwindRecord& record);

  // Calls callback(index, code), ascending. A code that is cut off comes last, as an error.
  template <typename Callback>
  void each(Callback&& callback) const {
    for (std::size_t word = 0; word < std::size(bits_); ++word)
      for (std::uint64_t rest = bits_[word]; rest != 0; rest &= rest - 1) {
        const std::uint64_t index = word * 64 + static_cast<unsigned>(std::countr_zero(rest));
        callback(index, code_at(codes_, index));
      }
  }

 private:
  void add_sequence(std::uint64_t index);

  ByteView codes_;
  std::uint64_t bits_[kMaxCodeBytes / 64 + 1] = {};
};

// Appends the instruction for which the code stands, in a prologue or an epilogue: "stp x19, x20, [sp, #-32]!" or "ldp
// x19, x20, [sp], #32". Appends nothing for codes that stand for no instruction.
void append_instruction(std::string& out, const UnwindCode& code, bool prologue);

}  // namespace windlass::winarm64
