// Machine code as text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "windlass/bytes.h"
#include "windlass/registers.h"

namespace windlass::annotate {

struct Instruction {
  std::uint64_t address = 0;
  std::uint32_t size = 0;                 // in bytes
  std::string text;                       // in Intel's syntax on x86; "(bad)" for bytes that are no instruction
  std::optional<std::uint64_t> target{};  // of a direct jump or call
  bool is_call = false;
};

// All of `code`, whose first byte has the address `begin`. Where this build has no disassembler for the architecture,
// the text is the instruction's word (".word 0xd65f03c0"). O(bytes).
[[nodiscard]] std::vector<Instruction> disassemble(Architecture architecture, std::uint64_t begin, ByteView code);

[[nodiscard]] constexpr const char* machine_text(Architecture architecture) {
  return architecture == Architecture::kAArch64 ? "aarch64" : architecture == Architecture::kI386 ? "i386" : "x86-64";
}

// What disassemble() calls. Of disassemble_aarch64() there are two: by Capstone, or words alone. A program is linked
// with one of them.
void disassemble_x86(Architecture architecture, std::uint64_t begin, ByteView code, std::vector<Instruction>& to);
void disassemble_aarch64(std::uint64_t begin, ByteView code, std::vector<Instruction>& to);
[[nodiscard]] bool has_aarch64_disassembler();

inline constexpr std::uint32_t kAArch64Size = 4;
[[nodiscard]] Instruction aarch64_word(std::uint64_t address, ByteView bytes);

}  // namespace windlass::annotate
