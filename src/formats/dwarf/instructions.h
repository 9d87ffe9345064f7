// CFA instructions one by one, as stored: for printing. Rows come from the interpreter.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/dwarf/cfi.h"

namespace windlass::dwarf {

struct CfaInstruction {
  std::string_view name;    // "def_cfa_offset", without the DW_CFA_ in front
  std::uint8_t opcode = 0;  // the three packed ones without their operand
  bool has_register = false;
  bool has_source = false;    // DW_CFA_register's second one
  bool has_offset = false;    // `offset`: bytes, multiplied by the data alignment factor where it is factored
  bool has_location = false;  // `location` is what the instruction moves to
  bool has_expression = false;
  std::uint64_t reg = 0;
  std::uint64_t source = 0;
  std::int64_t offset = 0;
  std::uint64_t delta = 0;  // bytes of code, for the advances
  std::uint64_t location = 0;
  ByteView expression;
};

// Walks the instructions of an FDE, or of a CIE (location 0).
class CfaInstructionReader {
 public:
  CfaInstructionReader(const CfiSection& section, const Cie& cie, ByteView program, std::uint64_t location)
      : section_(section), cie_(cie), cursor_(program), location_(location) {}

  [[nodiscard]] bool at_end() const { return cursor_.at_end(); }
  [[nodiscard]] std::uint64_t position() const { return cursor_.position(); }  // of the next, in the program
  // After an error there is no next instruction: its length is unknown.
  [[nodiscard]] Expected<CfaInstruction> next();

 private:
  [[nodiscard]] Expected<void> move(CfaInstruction& instruction, std::uint64_t delta);

  const CfiSection& section_;
  const Cie& cie_;
  ByteCursor cursor_;
  std::uint64_t location_;
};

}  // namespace windlass::dwarf
