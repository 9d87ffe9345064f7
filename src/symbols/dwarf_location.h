// Values by DWARF location descriptions (DWARF 5 section 2.6), read in a frame. libdw decodes the expressions, which
// are hostile: evaluation has bounds.
#pragma once

#include <elfutils/libdw.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "windlass/walk.h"

namespace windlass::symbols {

// What an expression may ask of its frame. An empty answer: not known.
class ExpressionFrame {
 public:
  // `vector_registers`: StackPlace's.
  ExpressionFrame(const Registers& registers, const Memory& memory, std::uint64_t bias,
                  std::span<const std::byte> vector_registers)
      : registers_(registers), memory_(memory), bias_(bias), vector_registers_(vector_registers) {}
  virtual ~ExpressionFrame() = default;

  [[nodiscard]] const Registers& registers() const { return registers_; }
  // The 16 bytes of a vector register, by its DWARF number. Empty: not known.
  [[nodiscard]] std::span<const std::byte> vector_register(std::uint64_t reg) const;
  [[nodiscard]] const Memory& memory() const { return memory_; }
  // Address in the process - address in the debug information.
  [[nodiscard]] std::uint64_t bias() const { return bias_; }

  [[nodiscard]] virtual std::optional<std::uint64_t> cfa() = 0;
  [[nodiscard]] virtual std::optional<std::uint64_t> frame_base() = 0;
  // The value that a register had when the function was entered.
  [[nodiscard]] virtual std::optional<std::uint64_t> entry_value(std::uint64_t reg) = 0;

 private:
  Registers registers_;
  const Memory& memory_;
  std::uint64_t bias_;
  std::span<const std::byte> vector_registers_;
};

enum class Presence : std::uint8_t {
  kHere,
  kOptimizedOut,  // The debug information has no place for it here.
  kUnknown,       // It has one, in a register or memory that is not known, or by an operation that is not.
};

struct LocatedValue {
  Presence presence = Presence::kOptimizedOut;
  std::vector<std::byte> bytes;  // As in the target's memory.
};

// The value at an address of code, in the numbering of the debug information.
[[nodiscard]] LocatedValue read_located(Dwarf_Attribute* location, Dwarf_Addr pc, std::size_t size,
                                        ExpressionFrame& frame);

enum class MemoryReads : std::uint8_t { kAllowed, kRefused };
// The value of an expression, as DW_AT_frame_base and DW_AT_call_value have. A register stands for its content.
[[nodiscard]] std::optional<std::uint64_t> value_of(Dwarf_Attribute* expression, Dwarf_Addr pc, ExpressionFrame& frame,
                                                    MemoryReads reads);
// The register that an expression consists of, as DW_OP_reg5 or DW_OP_breg6 do. With an offset: not a bare register.
struct NamedRegister {
  std::uint64_t number;
  bool is_bare;
};
[[nodiscard]] std::optional<NamedRegister> only_register(Dwarf_Attribute* expression);

}  // namespace windlass::symbols
