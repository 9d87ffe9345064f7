// Values of a program as text, by the types of its debug information. Both are hostile: text, nesting and the entries
// looked at have bounds.
#pragma once

#include <elfutils/libdw.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "windlass/bytes.h"
#include "windlass/walk.h"

namespace windlass::symbols {

// How many entries of debug information may still be looked at.
class EntryBudget {
 public:
  explicit EntryBudget(std::size_t entries) : left_(entries) {}
  [[nodiscard]] bool take() {
    if (left_ == 0) return false;
    --left_;
    return true;
  }

 private:
  std::size_t left_;
};

// Follows DW_AT_type. False: there is none, which means void.
[[nodiscard]] bool type_of(Dwarf_Die* entry, Dwarf_Die& type);

class ValueText {
 public:
  ValueText(const Memory& memory, unsigned word_size, EntryBudget& budget)
      : memory_(memory), word_size_(word_size), budget_(budget) {}

  // The bytes that a value of the type has. 0: not known, or more than are shown.
  [[nodiscard]] std::size_t size_of(const Dwarf_Die& type) { return size_of(type, 0); }
  // "const char *"
  [[nodiscard]] std::string type_name(const Dwarf_Die& type) { return named(type, 0); }
  // `bytes`: size_of() of them. None: its type, or {} of a structure without members.
  [[nodiscard]] std::string value(const Dwarf_Die& type, ByteView bytes);

 private:
  [[nodiscard]] std::size_t size_of(const Dwarf_Die& type, int depth);
  [[nodiscard]] bool peel(Dwarf_Die& type);
  [[nodiscard]] std::string named(Dwarf_Die type, int depth);
  void write(Dwarf_Die type, ByteView bytes, int depth);
  void write_base(Dwarf_Die& type, ByteView bytes);
  void write_integer(unsigned encoding, ByteView bytes);
  void write_wide(bool has_sign, ByteView bytes);
  void write_float(ByteView bytes);
  void write_enumerator(Dwarf_Die& type, ByteView bytes);
  void write_pointer(Dwarf_Die& type, ByteView bytes);
  void write_reference(Dwarf_Die& type, ByteView bytes, int depth);
  void write_string(std::uint64_t address);
  void write_text(std::string_view bytes, bool is_cut);
  void write_members(Dwarf_Die& type, ByteView bytes, int depth);
  [[nodiscard]] bool write_variant(Dwarf_Die& part, ByteView bytes, int depth);
  [[nodiscard]] bool write_member(Dwarf_Die& member, ByteView bytes, int depth);
  void write_array(Dwarf_Die& type, ByteView bytes, int depth, std::size_t dimension);
  void write_type(const Dwarf_Die& type);

  const Memory& memory_;
  unsigned word_size_;
  EntryBudget& budget_;
  std::string text_;
};

}  // namespace windlass::symbols
