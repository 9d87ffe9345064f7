// The code of a function as the search for epilogues reads it: from what looks like an exit back.
#pragma once

#include <cstdint>
#include <cstring>

#include "windlass/bytes.h"

namespace windlass::winx64 {

// Places are offsets from the function's begin.
class ExitCode {
 public:
  ExitCode() = default;
  // `code` may reach behind the function's `length`. `indirect`: the function's entry is one, and jumps may stay in the
  // entry that it stands for.
  ExitCode(ByteView code, std::uint32_t length, unsigned frame_register, bool indirect)
      : code_(code), length_(length), frame_register_(frame_register), indirect_(indirect) {}

  // What is before this place belongs to an earlier epilogue.
  void begin_at(std::uint32_t place) { free_ = place; }
  [[nodiscard]] std::uint32_t begin() const { return free_; }

  // Does what looks like one leave the function? The byte at `at` is one of those that `each_exit` stops at.
  [[nodiscard]] bool is_exit(std::uint32_t at) const {
    const std::uint8_t* code = code_.u8() + at;
    const std::uint64_t room = code_.size() - at;
    switch (code[0]) {
      case 0xc3: return true;
      case 0xc2: return room < 3 || ((code[1] & 7) == 0 && code[2] <= 4);
      case 0xff: return code[1] == 0x25 || (at > 0 && (code[-1] & 0xf8) == 0x48);
      default: {
        if (room < 5 || indirect_) return true;
        const std::int64_t target = jump_target(at);
        return target <= 0 || target >= length_;
      }
    }
  }
  // The target of a jump by a displacement, of which 5 bytes can be read.
  [[nodiscard]] std::int64_t jump_target(std::uint32_t at) const {
    const std::uint8_t* code = code_.u8() + at;
    return at + (code[0] == 0xeb ? static_cast<std::int8_t>(code[1]) + 2 : std::int64_t{load_word(code + 1)} + 5);
  }
  // Where an instruction that may stand before `at` in an epilogue begins; `at` itself: there is none.
  [[nodiscard]] std::uint32_t before(std::uint32_t at, bool is_exit) const {
    const std::uint8_t* code = code_.u8() + at;
    const std::uint32_t room = at - free_;
    if (room >= 1 && is_exit) {  // prefixes count as instructions here
      if (code[-1] == 0xf2 || (code[0] == 0xc3 && (code[-1] == 0xf3 || code[-1] == 0x90))) return at - 1;
      if (code[0] == 0xff && (code[-1] & 0xf8) == 0x48) return at - 1;
    }
    // Not if what looks like a REX prefix is the displacement of a release.
    if (room >= 2 && (code[-1] & 0xf8) == 0x58 && (code[-2] & 0xf0) == 0x40 && release_before(at - 1) == at - 1)
      return at - 2;
    if (room >= 1 && (code[-1] & 0xf8) == 0x58) return at - 1;
    if (room >= 3 && code[-3] == 0xc5 && code[-2] == 0xf8 && code[-1] == 0x77) return at - 3;
    return at;
  }
  // Where the release that ends at `at` begins; `at` itself: there is none.
  [[nodiscard]] std::uint32_t release_before(std::uint32_t at) const {
    const std::uint8_t* code = code_.u8() + at;
    const std::uint32_t room = at - free_;
    if (room < 4) return at;
    if (code[-4] == 0x48 && code[-3] == 0x83 && code[-2] == 0xc4) return at - 4;
    if (room >= 7 && code[-7] == 0x48 && code[-6] == 0x81 && code[-5] == 0xc4) return at - 7;
    if (frame_register_ == 0) return at;
    const bool sib = (frame_register_ & 7) == 4;
    for (const std::uint32_t size : {sib ? 5U : 4U, sib ? 8U : 7U}) {
      if (room < size) break;
      const std::uint8_t* lea = code - size;
      const unsigned mod_rm = (size < 6 ? 0x60U : 0xa0U) | (frame_register_ & 7);
      if (lea[0] == (0x48U | frame_register_ >> 3) && lea[1] == 0x8d && lea[2] == mod_rm && (!sib || lea[3] == 0x24))
        return at - size;
    }
    return at;
  }

 private:
  static std::int32_t load_word(const std::uint8_t* code) {
    std::int32_t word;
    std::memcpy(&word, code, sizeof word);
    return word;
  }

  ByteView code_;
  std::uint32_t length_ = 0;
  std::uint32_t free_ = 0;
  unsigned frame_register_ = 0;  // 0: none
  bool indirect_ = false;
};

}  // namespace windlass::winx64
