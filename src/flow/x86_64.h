// x86-64 code, decoded by Zydis.
#pragma once

#include <span>

#include "flow/explorer.h"
#include "flow/x86_64_decoder.h"

namespace windlass::flow {

class X86_64 {
 public:
  static constexpr Architecture kArchitecture = Architecture::kX86_64;
  static constexpr unsigned kSlots = 17;
  static constexpr std::int64_t kEntryCfa = 8;

  Flow step(CodeReader& code, Path<X86_64>& path);
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
  // Does a function save preserved registers first? It may also stand behind a call, which then never returns:
  // functions that are not aligned (-Os) follow each other so.
  [[nodiscard]] static bool begins_prologue(CodeReader& code, std::uint64_t address);
  // Does a function probably begin at an address that is a multiple of 16? By the byte before it and the first ones.
  static constexpr std::size_t kBeforeStart = 1, kOfStart = 3;
  static constexpr std::uint8_t kPadding = 0xcc;  // int3
  [[nodiscard]] static bool begins_aligned(std::span<const std::uint8_t, kBeforeStart + kOfStart> bytes);
  [[nodiscard]] static bool loads_table(CodeReader& code, std::uint64_t address);
  // Has the function that the path began at put its return address into a frame record of its caller's making
  // (callee_record.h)? Then the frame pointer says where the frame is.
  [[nodiscard]] static bool has_callers_record(const SymbolicState<kSlots>& state);
  static constexpr unsigned kInstructionStep = 1;
  static void look_back(CodeReader& code, Path<X86_64>& path);

 private:
  X86Decoder decoder_;
};

}  // namespace windlass::flow
