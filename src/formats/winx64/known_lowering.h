// What lowering keeps from function to function: the rows of prologues and of epilogues, by what they depend on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "formats/winx64/epilogue.h"
#include "formats/winx64/read.h"
#include "formats/winx64/row_writer.h"
#include "rows/known_rows.h"

namespace windlass::winx64 {

// The rows of a function but for its epilogues, by its unwind information. Of version 1, neither chained nor indirect.
struct KnownPrologue {
  // The information without its flags and what stands behind the codes.
  struct Key {
    static constexpr std::size_t kMost = 56;  // bytes
    std::uint64_t words[kMost / 8] = {};
    bool operator==(const Key&) const = default;

    // False: it is none of those that are kept. `info` begins with it.
    [[nodiscard]] bool assign(ByteView info) {
      constexpr std::uint32_t kFlags = 31 << 3, kVersion1 = 1;
      if (info.size() < kMost + sizeof(RuntimeFunction)) return false;  // nothing is cut off
      const std::uint32_t header = word_at(info, 0);
      const std::size_t size = kHeaderSize + 2ULL * (header >> 16 & 255);
      if ((header & 7) != kVersion1 || (header >> 3 & kChaininfo) != 0 || size > kMost) return false;
      for (std::size_t i = 0; i < kMost / 8; ++i) {
        std::memcpy(&words[i], info.data() + i * 8, 8);
        if (size < i * 8 + 8) words[i] &= size <= i * 8 ? 0 : (std::uint64_t{1} << (size - i * 8) * 8) - 1;
      }
      words[0] &= ~std::uint64_t{kFlags};
      return true;
    }
    [[nodiscard]] std::uint64_t hash() const {
      std::uint64_t hash = 0;
      for (const std::uint64_t word : words) hash = (hash ^ word) * 0x9e37'79b9'7f4a'7c15;
      return hash >> 32;
    }
    [[nodiscard]] unsigned frame_register() const { return words[0] >> 24 & 15; }
  };
  // From `offset` of the function on.
  struct Step {
    std::uint32_t offset = 0;
    std::uint32_t number = 0;  // in the rows kept
    CfaWord cfa{};
  };
  static constexpr std::size_t kMostSteps = 20;

  Key key;
  std::uint16_t count = 0;  // 0: nothing is kept here
  bool has_operations = false;
  Step steps[kMostSteps];
};

// The rows of an epilogue by its pops.
struct KnownPops {
  std::uint64_t pops = 0;  // the first popped lowest
  std::uint16_t return_pops = 0;
  std::uint8_t count = 0;
  bool known = false;
  // Behind so many pops: the number in the rows kept, and the CFA.
  std::uint32_t numbers[sizeof(EpilogueMatch::pops) + 1];
  CfaWord cfas[sizeof(EpilogueMatch::pops) + 1];
};

class KnownLowering {
 public:
  // To be called between functions: makes room.
  void tidy() {
    if (prologues_.empty()) {
      prologues_.resize(kPrologues);
      pops_.resize(kPops);
    } else if (rows.full()) {
      rows.clear();
      std::ranges::fill(prologues_, KnownPrologue());
      std::ranges::fill(pops_, KnownPops());
    }
  }
  // Where that of a key is kept, or is to be put.
  [[nodiscard]] KnownPrologue& prologue(const KnownPrologue::Key& key) { return prologues_[key.hash() % kPrologues]; }
  // The rows of an epilogue with such pops. Null: there is no room to keep them.
  [[nodiscard]] const KnownPops* pops_of(const EpilogueMatch& match) {
    std::uint64_t pops = 0;
    for (unsigned i = 0; i < match.pop_count; ++i) pops |= std::uint64_t{match.pops[i]} << 4 * i;
    KnownPops& known = place_of(pops, match.return_pops, match.pop_count);
    if (known.known && known.pops == pops && known.return_pops == match.return_pops && known.count == match.pop_count)
      return &known;
    known = {pops, match.return_pops, match.pop_count, false, {}, {}};
    Row row;
    FrameRow filled;
    for (unsigned first = 0; first <= match.pop_count; ++first) {
      row_in_epilogue(match, first, false, row);
      RowWriter::fill(row, filled);
      known.numbers[first] = rows.number_of(filled);
      known.cfas[first] = word_of(filled.cfa);
      if (known.numbers[first] == 0) return nullptr;
    }
    known.known = true;
    return &known;
  }

  KnownRows rows;

 private:
  static constexpr std::size_t kPrologues = 2048, kPops = 256;

  [[nodiscard]] KnownPops& place_of(std::uint64_t pops, std::uint64_t return_pops, std::uint64_t count) {
    const std::uint64_t hash = (pops ^ return_pops << 40 ^ count << 56) * 0x9e37'79b9'7f4a'7c15;
    return pops_[(hash >> 32) % kPops];
  }

  std::vector<KnownPrologue> prologues_;
  std::vector<KnownPops> pops_;
};

}  // namespace windlass::winx64
