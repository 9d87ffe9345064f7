// x86-64 code, decoded by Zydis.
#pragma once

#include <Zydis/Zydis.h>

#include "code/explorer.h"

namespace windlass::code {

// DWARF number of the 64-bit register that contains `reg`; kNoDwarfNumber for anything else.
inline constexpr unsigned kNoDwarfNumber = 17;
[[nodiscard]] unsigned dwarf_number(ZydisRegister reg);

class X86_64 {
 public:
  static constexpr Architecture kArchitecture = Architecture::kX86_64;
  static constexpr unsigned kSlots = 17;
  static constexpr std::int64_t kEntryCfa = 8;

  X86_64();
  Flow step(CodeReader& code, Path<X86_64>& path);
  static Value return_from_entry(SymbolicState<kSlots>& state);
  static Value return_from_frame(SymbolicState<kSlots>& state);
  static void frame_pointer_row(std::uint64_t pc, FrameRow& row);
  static void entry_row(std::uint64_t pc, FrameRow& row);
  [[nodiscard]] static bool is_entry_row(const FrameRow& row);
  // If `pc` is in a stub for lazy binding: the row's CFA and registers.
  [[nodiscard]] static bool linkage_stub(CodeReader& code, std::uint64_t pc, FrameRow& row);
  // By its first bytes: can `pc` be in an epilogue?
  [[nodiscard]] static bool may_be_epilogue(const CodeSource& source, std::uint64_t pc);
  // Does a call end at `address`? True where that cannot be read.
  [[nodiscard]] static bool behind_call(const CodeSource& source, std::uint64_t address);
  // Does `address` begin the code that ends a signal handler?
  [[nodiscard]] static bool signal_trampoline(const CodeSource& source, std::uint64_t address);
  // Does something end before `address` that does not go on there?
  [[nodiscard]] static bool may_start_function(CodeReader& code, std::uint64_t address);
  // Does an instruction at `address` load the address of a table?
  [[nodiscard]] static bool loads_table(CodeReader& code, std::uint64_t address);
  static constexpr unsigned kInstructionStep = 1;
  // What the bytes before the pc say about the state there.
  static void look_back(CodeReader& code, Path<X86_64>& path);

 private:
  ZydisDecoder decoder_;
};

}  // namespace windlass::code
