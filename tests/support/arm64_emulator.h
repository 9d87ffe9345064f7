// Real ARM64 PE functions run by Unicorn, one instruction at a time, on a fabricated stack.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "support/emulator_core.h"
#include "windlass/registers.h"

namespace windlass::test {

class Arm64Emulator : public EmulatorCore {
 public:
  static constexpr std::uint64_t kReturn = 0x7654'3210'0000;  // the caller's; nothing is mapped there
  static constexpr std::uint32_t kVectorLength = 32;          // of the scalable vectors that step() runs itself

  explicit Arm64Emulator(const image::PeImage& image) : EmulatorCore(UC_ARCH_ARM64, UC_MODE_ARM, image) {
    for (unsigned i = 0; i < kCount; ++i) pointers_[i] = &values_[i];
  }

  // TargetMemory: the stack, nothing else.
  [[nodiscard]] bool read(std::uint64_t address, void* to, std::size_t size) const {
    return stack_.read(address, to, size);
  }
  bool write(std::uint64_t address, std::uint64_t value) { return stack_.write(address, value); }
  [[nodiscard]] std::uint32_t instruction(std::uint64_t address) const {
    std::uint32_t word = 0;
    if (address >= base_ && address - base_ + 4 <= image_.size())
      std::memcpy(&word, image_.bytes() + (address - base_), sizeof word);
    return word;
  }

  // A call from nowhere, with other values for every one. General registers point into readable memory.
  Registers call(std::uint64_t address) {
    Registers state(Architecture::kAArch64);
    for (RegisterNumber i = 0; i < 30; ++i) state.set(i, pointer());
    state.set(30, kReturn + (random_() & 0xffff & ~3ULL));
    for (RegisterNumber i = 72; i < 80; ++i) state.set(i, random_());
    state.set_sp(kTop);
    state.set_pc(CodeAddress::instruction(address));
    return state;
  }
  std::uint64_t pointer() { return kArena + 0x40000 + (random_() % 0x40000 & ~15ULL); }

  void set(const Registers& state) {
    state.for_each([&](RegisterNumber reg, std::uint64_t value) {
      if (reg <= 31) values_[reg] = value;
      if (reg >= 72) values_[32 + reg - 72] = value;
      if (reg == 32) values_[kCount - 1] = value;
    });
    uc_reg_write_batch(engine_, kIds.data(), pointers_, kCount);
  }
  [[nodiscard]] Registers get() {
    uc_reg_read_batch(engine_, kIds.data(), pointers_, kCount);
    Registers state(Architecture::kAArch64);
    for (RegisterNumber i = 0; i < 32; ++i) state.set(i, values_[i]);
    for (RegisterNumber i = 0; i < 8; ++i) state.set(static_cast<RegisterNumber>(72 + i), values_[32 + i]);
    state.set_pc(CodeAddress::instruction(values_[kCount - 1]));
    return state;
  }
  // Runs the instruction at the pc. False: it faulted. A jump to where nothing is mapped is no fault.
  bool step(Registers& state) {
    const std::uint64_t pc = state.pc().value();
    const std::uint32_t word = instruction(pc);
    // Unicorn 2.0.1 traps pointer authentication to a level that is not there, so it is done here, by a code of its
    // own.
    if (word == 0xd503'237f) return next(state, sign(state.get(30), state.sp()));  // pacibsp
    if (word == 0xd503'23ff) {                                                     // autibsp
      const std::uint64_t plain = state.get(30) & ~kSigned;
      return sign(plain, state.sp()) == state.get(30) && next(state, plain);
    }
    if (const auto done = scalable(word, state)) return *done;
    set(state);
    const uc_err error = uc_emu_start(engine_, pc, ~std::uint64_t{0}, 0, 1);
    if (error != UC_ERR_OK && error != UC_ERR_FETCH_UNMAPPED) return false;
    state = get();
    return true;
  }
  [[nodiscard]] static std::uint64_t sign(std::uint64_t pointer, std::uint64_t modifier) {
    return pointer | (((pointer ^ modifier) * 0x9e37'79b9'7f4a'7c15) & kSigned);
  }

 private:
  static constexpr unsigned kCount = 31 + 1 + 8 + 1;
  static constexpr std::uint64_t kSigned = 0xff7f'0000'0000'0000;

  // addvl sp, and the stores and loads of z and p registers through sp, which Unicorn 2.0.1 does not know either; Arm
  // ARM C8.2. Of a z register only the low 64 bits are kept between a store and its load.
  std::optional<bool> scalable(std::uint32_t word, Registers& state) {
    const auto done = [&state](bool works) {
      state.set_pc(CodeAddress::instruction(state.pc().value() + 4));
      return works;
    };
    if ((word & 0xffff'f81f) == 0x043f'501f) {  // addvl sp, sp, #imm6
      const std::uint32_t lengths = word >> 5 & 63;
      state.set_sp(state.sp() + (std::uint64_t{lengths} - (lengths > 31 ? 64U : 0U)) * kVectorLength);
      return done(true);
    }
    const std::uint32_t kind = word & 0xffc0'e3e0;
    const bool z = kind == 0xe580'43e0 || kind == 0x8580'43e0, p = kind == 0xe580'03e0 || kind == 0x8580'03e0;
    if (!z && !p) return std::nullopt;
    const std::uint32_t offset = (word >> 16 & 63) << 3 | (word >> 10 & 7);  // non-negative in what is assembled here
    const std::uint64_t at = state.sp() + offset * (z ? kVectorLength : kVectorLength / 8);
    const auto d = static_cast<RegisterNumber>(64 + (word & 31));
    const bool load = word >> 30 != 3;
    if (!z || d < 72 || d > 79) return done(load || write(at & ~7ULL, random_()));
    std::uint64_t value = 0;
    if (!load) return done(write(at, state.get(d)));
    if (!read(at, &value, sizeof value)) return false;
    state.set(d, value);
    return done(true);
  }
  static bool next(Registers& state, std::uint64_t lr) {
    state.set(30, lr);
    state.set_pc(CodeAddress::instruction(state.pc().value() + 4));
    return true;
  }
  static constexpr std::array<int, kCount> make_ids() {
    std::array<int, kCount> ids{};
    for (int i = 0; i < 29; ++i) ids[static_cast<std::size_t>(i)] = UC_ARM64_REG_X0 + i;
    ids[29] = UC_ARM64_REG_X29;
    ids[30] = UC_ARM64_REG_X30;
    ids[31] = UC_ARM64_REG_SP;
    for (int i = 0; i < 8; ++i) ids[static_cast<std::size_t>(32 + i)] = UC_ARM64_REG_D8 + i;
    ids[40] = UC_ARM64_REG_PC;
    return ids;
  }
  static inline std::array<int, kCount> kIds = make_ids();

  std::uint64_t values_[kCount] = {};
  void* pointers_[kCount];
};

}  // namespace windlass::test
