// Rows that a walker has met, in the one form that nearly all of them have: CFA = register + offset, return address and
// registers at CFA + offset; or none, as there is no caller. A hit is a handful of loads; everything else goes the
// whole way.
#pragma once

#include <cstdint>

#include "windlass/registers.h"
#include "windlass/walk.h"

namespace windlass::walk {

class Module;

// 64 bytes: one cache line. A row is kept for one rows_id() of a module (never given twice) and one pc. Without
// initialisers: a cache in fresh pages is empty, and a first walk shall not touch them all.
struct alignas(64) KeptRow {
  static constexpr unsigned kMaxSaved = 10;
  static constexpr unsigned kMaxWords = 12;
  static constexpr unsigned kUsual = 7;  // saved registers that a step restores without asking how many there are

  std::uint64_t module;     // Module::rows_id(); 0: empty
  std::uint64_t key;        // key_of() its pc
  std::uint64_t preserved;  // slots of the registers that keep their value
  std::int32_t cfa_offset;
  std::uint8_t cfa_slot;
  bool return_signed : 1;
  FrameOrigin origin : 3;
  std::uint8_t saved : 4;        // how many of these are in use; the first is the return address. 0: there is no caller
  std::uint8_t slot[kMaxSaved];  // those up to kUsual that are not in use repeat the first
  std::int16_t offset[kMaxSaved];  // from the lowest of them
  std::int16_t lowest;             // from the CFA. All lie in `words` words from there on, read at once
  std::uint8_t words;

  [[nodiscard]] bool is(std::uint64_t in, std::uint64_t at) const { return key == at && module == in; }
  [[nodiscard]] bool ends_stack() const { return saved == 0; }
  // A return address and an instruction at the same place have different rows.
  [[nodiscard]] static std::uint64_t key_of(CodeAddress pc) {
    return pc.value() ^ (pc.is_return_address() ? 0 : std::uint64_t{1} << 63);
  }
};
static_assert(sizeof(KeptRow) == 64);

// Two-way associative. Made in zeroed memory (make_unique, fresh pages). One walker uses it at a time, and later
// walkers may use it again: the ids and pcs of entries stay unique.
class RowCache {
 public:
  // Null where the row is not here.
  [[nodiscard]] const KeptRow* find(std::uint64_t module, CodeAddress pc) const {
    const std::uint64_t key = KeptRow::key_of(pc);
    const KeptRow* set = rows_ + first_of_set(module, key);
    if (set[0].is(module, key)) [[likely]]
      return &set[0];
    return set[1].is(module, key) ? &set[1] : nullptr;
  }
  // Does nothing for a row of another form. The row of an instruction: only if its code does not contradict it.
  void keep(std::uint64_t module, CodeAddress pc, const FrameRow& row, FrameOrigin origin, Architecture architecture);

 private:
  static constexpr unsigned kBits = 12;
  static std::size_t first_of_set(std::uint64_t module, std::uint64_t key) {
    return (key * 0x9e37'79b9'7f4a'7c15 + module) >> (64 - kBits) & ~std::size_t{1};
  }
  KeptRow rows_[1u << kBits];
};

// Applies a kept row, which does not end the stack, to a frame in `module`. Gives the same caller as apply(). On true
// `frame` is the caller, and `module` the module that contains it. On false nothing is changed: a slot is unreadable or
// below sp, the caller is outside of known code, or the stack does not move up.
[[nodiscard]] bool apply_in_place(const KeptRow& row, const AddressSpace& space, const WalkOptions& options,
                                  Frame& frame, const Module*& module);
// The same of registers and where they are saved, in 64-bit code that the caller knows, whatever contains the pc.
[[nodiscard]] bool apply_in_place(const KeptRow& row, const AddressSpace& space, Registers& registers,
                                  SavedLocations& saved);
// The CFA alone; 0, if the register that it counts from is not known.
[[nodiscard]] inline std::uint64_t cfa_of(const KeptRow& row, const Registers& registers) {
  if (!registers.has_slot(row.cfa_slot)) return 0;
  return registers.get_slot(row.cfa_slot) + static_cast<std::uint64_t>(std::int64_t{row.cfa_offset});
}

}  // namespace windlass::walk
