// What lowering keeps from function to function: the rows by the codes that they follow from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "formats/winarm64/read.h"
#include "rows/known_rows.h"

namespace windlass::winarm64 {

// The codes of a record, and what follows from each of them as the first one to execute.
struct KnownCodes {
  static constexpr std::size_t kMost = 48;  // bytes
  struct Row {
    CfaWord cfa{};
    std::uint32_t number = 0;  // in the rows kept; 0: not known
  };

  std::uint64_t key[kMost / 8] = {};
  std::uint32_t size = ~std::uint32_t{0};  // of the codes; at first none of them
  std::uint8_t after[kMost + 1];           // skip_codes(codes, index, 1)
  std::uint8_t instructions[kMost + 1];    // count_instructions(codes, index)
  Row rows[kMost + 1];                     // the last one: without codes

  // As long as kMost bytes can be read.
  [[nodiscard]] bool is_of(ByteView codes) const {
    if (codes.size() != size) return false;
    std::uint64_t differ = 0;
    for (std::size_t at = 0; at < kMost; at += 8) differ |= key[at / 8] ^ word_of(codes, at);
    return differ == 0;
  }
  void assign(ByteView codes) {
    size = static_cast<std::uint32_t>(codes.size());
    for (std::size_t at = 0; at < kMost; at += 8) key[at / 8] = word_of(codes, at);
    std::ranges::fill(rows, Row());
    for (std::uint32_t index = size + 1; index-- > 0;) {
      const bool ends = index == size || (codes.u8()[index] & 0xfe) == 0xe4;  // end, end_c
      const std::uint32_t next = ends ? index : index + code_size(codes.u8()[index]);
      after[index] = static_cast<std::uint8_t>(std::min<std::uint32_t>(next, kMost));
      instructions[index] = ends ? 0
                                 : static_cast<std::uint8_t>(code_instructions(codes.u8()[index]) +
                                                             (next < size ? instructions[next] : 0));
    }
  }
  [[nodiscard]] static std::uint64_t hash_of(ByteView codes) {
    std::uint64_t hash = codes.size();
    for (std::size_t at = 0; at < codes.size(); at += 8) hash = (hash ^ word_of(codes, at)) * 0x9e37'79b9'7f4a'7c15;
    return hash >> 32;
  }

 private:
  // Of the codes alone.
  [[nodiscard]] static std::uint64_t word_of(ByteView codes, std::size_t at) {
    if (at >= codes.size()) return 0;
    std::uint64_t word = 0;
    const std::size_t rest = codes.size() - at;
    if (rest >= 8) {
      std::memcpy(&word, codes.data() + at, 8);
    } else if (rest >= 4) {
      std::uint32_t low, high;
      std::memcpy(&low, codes.data() + at, 4);
      std::memcpy(&high, codes.data() + at + rest - 4, 4);
      word = low | std::uint64_t{high} << (rest - 4) * 8;
    } else {
      for (std::size_t i = 0; i < rest; ++i) word |= std::uint64_t{codes.u8()[at + i]} << i * 8;
    }
    return word;
  }
};

class KnownLowering {
 public:
  // The codes of the next function; null: they are none of those that are kept.
  [[nodiscard]] KnownCodes* codes(ByteView codes) {
    if (codes.size() > KnownCodes::kMost) return nullptr;
    if (rows.full()) {
      rows.clear();
      std::ranges::fill(codes_, KnownCodes());
    }
    KnownCodes& known = codes_[KnownCodes::hash_of(codes) % codes_.size()];
    if (!known.is_of(codes)) known.assign(codes);
    return &known;
  }

  KnownRows rows;

 private:
  std::vector<KnownCodes> codes_{1024};
};

}  // namespace windlass::winarm64
