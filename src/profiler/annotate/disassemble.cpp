#include "profiler/annotate/disassemble.h"

#include <fmt/format.h>

namespace windlass::annotate {

std::vector<Instruction> disassemble(Architecture architecture, std::uint64_t begin, ByteView code) {
  std::vector<Instruction> instructions;
  if (architecture != Architecture::kAArch64)
    disassemble_x86(architecture, begin, code, instructions);
  else
    disassemble_aarch64(begin, code, instructions);
  return instructions;
}

Instruction aarch64_word(std::uint64_t address, ByteView bytes) {
  const auto word = bytes.at<std::uint32_t>(0);
  if (!word) return {.address = address, .size = static_cast<std::uint32_t>(bytes.size()), .text = "(bad)"};
  return {.address = address, .size = kAArch64Size, .text = fmt::format(".word {:#010x}", *word)};
}

}  // namespace windlass::annotate
