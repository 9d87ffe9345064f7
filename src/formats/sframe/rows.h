// A row as SFrame says it, whatever type its function is of, to and from the row model.
#pragma once

#include <cstdint>

#include "windlass/error.h"
#include "windlass/frame_row.h"
#include "windlass/registers.h"

namespace windlass::sframe {

// Where a value is, by a control word of the flexible type and its offset. Rows of the default type say a part of this.
struct Place {
  std::uint32_t control = 0;  // 0: nothing is said
  std::int32_t offset = 0;

  [[nodiscard]] bool said() const { return control != 0; }
  [[nodiscard]] bool from_register() const;
  [[nodiscard]] bool loaded() const;
  [[nodiscard]] std::uint32_t reg() const;
  bool operator==(const Place&) const = default;
};
[[nodiscard]] Place in_register(RegisterNumber reg, std::int32_t offset);  // reg + offset
[[nodiscard]] Place at_register(RegisterNumber reg, std::int32_t offset);  // [reg + offset]
[[nodiscard]] Place at_cfa(std::int32_t offset);                           // [CFA + offset]

struct StoredRow {
  std::uint32_t start = 0;  // from the begin of the function, or of the block that repeats
  bool outermost = false;   // there is no caller, and nothing else is said
  bool is_signed = false;   // AArch64: the return address is
  Place cfa;
  Place return_address;  // not said: where calls leave it
  Place frame_pointer;   // not said: as it is

  [[nodiscard]] bool says_the_same(const StoredRow& other) const;
};

// All of a row but its range. What else calls preserve is undefined: the function may have saved it where it likes.
// Errors, with `where`: kMalformed, kUnsupported, kLimit for a register above kMaxRowRegister.
[[nodiscard]] Expected<void> lower(const StoredRow& stored, Architecture architecture, std::uint64_t where,
                                   FrameRow& to);

// What SFrame says of a row, `start` aside. Errors: as Writer::add()'s.
[[nodiscard]] Expected<StoredRow> stored_of(const FrameRow& row, Architecture architecture);

}  // namespace windlass::sframe
