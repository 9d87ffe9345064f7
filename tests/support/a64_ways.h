// All ways of A64 code. Encodings: Arm ARM C4.1.
#pragma once

#include <cstring>
#include <optional>

#include "support/ways.h"

namespace windlass::test {

class A64Ways : public Ways {
 public:
  static constexpr Architecture kArchitecture = Architecture::kAArch64;
  static constexpr RegisterNumber kPreserved[] = {19, 20, 21, 22, 23, 24, 25, 26, 27, 28,
                                                  29, 72, 73, 74, 75, 76, 77, 78, 79};

  A64Ways() : Ways(Architecture::kAArch64) {}

 private:
  void enter(std::uint64_t top) override {
    for (RegisterNumber reg = 0; reg < 30; ++reg) now_.set(reg, pointer());
    for (RegisterNumber reg = 72; reg < 80; ++reg) now_.set(reg, pointer());
    now_.set(30, kReturn);
    now_.set_sp(top);
    caller_ = now_;
    caller_.set_pc(CodeAddress::return_address(kReturn));
  }

  bool step(std::uint32_t offset, const ComesBack& comes_back) override {
    if (code_.size() - offset < 4) return false;
    std::uint32_t word = 0;
    std::memcpy(&word, code_.data() + offset, sizeof word);
    const std::uint64_t pc = begin_ + offset, next = pc + 4;
    const auto away = [&](unsigned shift, unsigned bits) {
      const auto field = static_cast<std::int64_t>(std::uint64_t{word} >> shift << (64 - bits));
      return pc + static_cast<std::uint64_t>((field >> (64 - bits)) * 4);
    };
    const bool conditional = (word & 0xff00'0010) == 0x5400'0000 || (word & 0x7e00'0000) == 0x3400'0000;
    if (conditional || (word & 0x7e00'0000) == 0x3600'0000) {  // b.cond, cbz; tbz
      wait_at(next);
      go(conditional ? away(5, 19) : away(5, 14));
      return true;
    }
    if ((word & 0xfc00'0000) == 0x1400'0000) {  // b
      go(away(0, 26));
      return true;
    }
    const bool indirect = (word & 0xfe00'0000) == 0xd600'0000;
    if ((word & 0xfc00'0000) == 0x9400'0000 || (indirect && (word >> 21 & 3) == 1)) {  // bl, blr, blraa
      if (!comes_back(offset, offset + 4)) return false;
      for (RegisterNumber reg = 0; reg < 19; ++reg) now_.set(reg, pointer());
      now_.set(30, next);
      forget_below();
      go(next);
      return true;
    }
    if (indirect || word >> 24 == 0xd4 || word >> 16 == 0) return false;  // br, ret; svc, brk; udf
    // Authentication codes among the hints, which Unicorn 2.0.1 cannot run, are empty here. mrs reads anything.
    if ((word & 0xffff'f01f) == 0xd503'201f || (word & 0xffc0'0000) == 0xd500'0000) {
      if ((word & 0xfff0'0000) == 0xd530'0000) put(word & 31);
      go(next);
      return true;
    }
    return execute(pc) || pretend(word, next);
  }

  bool execute(std::uint64_t pc) {
    std::array<std::uint64_t, 40> values;
    std::array<void*, 40> places;
    for (unsigned i = 0; i < 40; ++i) {
      values[i] = now_.get(number(i));
      places[i] = &values[i];
    }
    uc_reg_write_batch(engine_, ids_.data(), places.data(), 40);
    if (uc_emu_start(engine_, pc, ~std::uint64_t{0}, 0, 1) != UC_ERR_OK) return false;
    uc_reg_read_batch(engine_, ids_.data(), places.data(), 40);
    for (unsigned i = 0; i < 40; ++i) now_.set(number(i), values[i]);
    go(pc + 4);
    return true;
  }

  // Loads and stores of memory that is not there: other values in what they write. All else ends the way.
  bool pretend(std::uint32_t word, std::uint64_t next) {
    if ((word & 0x0a00'0000) != 0x0800'0000 || (word >> 5 & 31) == 31) return false;
    const bool vector = (word >> 26 & 1) != 0, load = (word >> 22 & 3) != 0;
    const unsigned first = word & 31, second = word >> 10 & 31, base = word >> 5 & 31;
    const bool pair = (word & 0x3a00'0000) == 0x2800'0000, single = (word & 0x3a00'0000) == 0x3800'0000;
    const bool exclusive = (word & 0x3f00'0000) == 0x0800'0000, literal = (word & 0x3b00'0000) == 0x1800'0000;
    if (!pair && !single && !exclusive && !literal) return false;
    if (vector && first >= 8 && first < 16) return false;
    if (!vector && (load || exclusive || literal)) put(first);
    if (!vector && pair && (word >> 22 & 1) != 0) put(second);
    if (exclusive) put(word >> 16 & 31);
    const bool writes_back = pair     ? (word >> 23 & 1) != 0
                             : single ? (word >> 24 & 1) == 0 && (word >> 21 & 1) == 0 && (word >> 10 & 1) != 0
                                      : false;
    if (writes_back) put(base);
    go(next);
    return true;
  }
  void put(unsigned reg) {
    if (reg != 31) now_.set(static_cast<RegisterNumber>(reg), pointer());
  }

  [[nodiscard]] static RegisterNumber number(unsigned i) {
    return static_cast<RegisterNumber>(i < 32 ? i : 72 + i - 32);
  }
  static std::array<int, 40> make_ids() {
    std::array<int, 40> ids{};
    for (int i = 0; i < 29; ++i) ids[static_cast<std::size_t>(i)] = UC_ARM64_REG_X0 + i;
    ids[29] = UC_ARM64_REG_X29;
    ids[30] = UC_ARM64_REG_X30;
    ids[31] = UC_ARM64_REG_SP;
    for (int i = 0; i < 8; ++i) ids[static_cast<std::size_t>(32 + i)] = UC_ARM64_REG_D8 + i;
    return ids;
  }
  std::array<int, 40> ids_ = make_ids();
};

}  // namespace windlass::test
