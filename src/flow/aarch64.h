// AArch64 code, its instructions read off their fields (aarch64_encoding.h).
#pragma once

#include "base/registers.h"
#include "flow/explorer.h"

namespace windlass::flow {

class AArch64 {
 public:
  static constexpr Architecture kArchitecture = Architecture::kAArch64;
  static constexpr unsigned kSlots = Registers::kSlots;
  static constexpr std::int64_t kEntryCfa = 0;
  static constexpr unsigned kLinkRegister = aarch64::kX30;

  Flow step(CodeReader& code, Path<AArch64>& path);
  static void forget_by_call(SymbolicState<kSlots>& state, std::uint64_t kept);
  static Value return_from_entry(SymbolicState<kSlots>& state);
  static Value return_from_frame(SymbolicState<kSlots>& state);
  static void frame_pointer_row(std::uint64_t pc, FrameRow& row);
  static void entry_row(std::uint64_t pc, FrameRow& row);
  [[nodiscard]] static bool is_entry_row(const FrameRow& row);
  [[nodiscard]] static bool linkage_stub(CodeReader& code, std::uint64_t pc, FrameRow& row);
  [[nodiscard]] static bool may_be_epilogue(const CodeSource& source, std::uint64_t pc);
  [[nodiscard]] static bool behind_call(const CodeSource& source, std::uint64_t address);
  [[nodiscard]] static std::uint64_t direct_call_target(const CodeSource& source, std::uint64_t address);
  [[nodiscard]] static std::uint64_t constant_call_target(const CodeSource& source, std::uint64_t address);
  [[nodiscard]] static bool behind_indirect_call(const CodeSource& source, std::uint64_t address);
  [[nodiscard]] static bool signal_trampoline(const CodeSource& source, std::uint64_t address);
  [[nodiscard]] static bool may_start_function(CodeReader& code, std::uint64_t address);
  [[nodiscard]] static bool loads_table(CodeReader& code, std::uint64_t address);
  static constexpr unsigned kInstructionStep = 4;
  static void look_back(CodeReader& code, Path<AArch64>& path);

 private:
  static bool in_first_linkage_entry(CodeReader& code, std::uint64_t pc);
};

}  // namespace windlass::flow
