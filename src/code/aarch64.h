// AArch64 code, its instructions read off their fields (aarch64_encoding.h).
#pragma once

#include "arch/registers.h"
#include "code/explorer.h"

namespace windlass::code {

class AArch64 {
 public:
  static constexpr Architecture kArchitecture = Architecture::kAArch64;
  static constexpr unsigned kSlots = Registers::kSlots;
  static constexpr std::int64_t kEntryCfa = 0;
  static constexpr unsigned kLinkRegister = aarch64::kX30;

  Flow step(CodeReader& code, Path<AArch64>& path);
  static Value return_from_entry(SymbolicState<kSlots>& state);
  static Value return_from_frame(SymbolicState<kSlots>& state);
  static void frame_pointer_row(std::uint64_t pc, FrameRow& row);
  static void entry_row(std::uint64_t pc, FrameRow& row);
  [[nodiscard]] static bool is_entry_row(const FrameRow& row);
  // If `pc` is in a stub for lazy binding: the row's CFA and registers.
  [[nodiscard]] static bool linkage_stub(CodeReader& code, std::uint64_t pc, FrameRow& row);
  [[nodiscard]] static bool may_be_epilogue(const CodeSource& source, std::uint64_t pc);
  // Does a call end at `address`? True where that cannot be read.
  [[nodiscard]] static bool behind_call(const CodeSource& source, std::uint64_t address);
  // Does `address` begin the code that ends a signal handler?
  [[nodiscard]] static bool signal_trampoline(const CodeSource& source, std::uint64_t address);
  // Does something end before `address` that does not go on there?
  [[nodiscard]] static bool may_start_function(CodeReader& code, std::uint64_t address);
  // Does an instruction at `address` load the address of a table?
  [[nodiscard]] static bool loads_table(CodeReader& code, std::uint64_t address);
  static constexpr unsigned kInstructionStep = 4;
  // What the instructions before the pc say about the state there.
  static void look_back(CodeReader& code, Path<AArch64>& path);

 private:
  static bool in_first_linkage_entry(CodeReader& code, std::uint64_t pc);
};

}  // namespace windlass::code
