#include <capstone/capstone.h>
#include <fmt/format.h>

#include <algorithm>

#include "profiler/annotate/disassemble.h"

namespace windlass::annotate {

namespace {

bool branches(const cs_detail& detail) {
  return std::any_of(detail.groups, detail.groups + detail.groups_count, [](std::uint8_t group) {
    return group == CS_GRP_JUMP || group == CS_GRP_CALL || group == CS_GRP_BRANCH_RELATIVE;
  });
}

// What a branch ends with, if that is an immediate.
std::optional<std::uint64_t> target_of(const cs_insn& decoded) {
  const cs_arm64& operands = decoded.detail->arm64;
  if (operands.op_count == 0 || !branches(*decoded.detail)) return std::nullopt;
  const cs_arm64_op& last = operands.operands[operands.op_count - 1];
  return last.type == ARM64_OP_IMM ? std::optional(static_cast<std::uint64_t>(last.imm)) : std::nullopt;
}

Instruction instruction_of(csh handle, std::uint64_t address, ByteView word) {
  cs_insn* decoded = nullptr;
  if (cs_disasm(handle, word.u8(), word.size(), address, 1, &decoded) != 1) return aarch64_word(address, word);
  Instruction instruction{.address = address, .size = kAArch64Size, .text = decoded->mnemonic};
  if (decoded->op_str[0] != '\0') instruction.text += fmt::format(" {}", decoded->op_str);
  instruction.target = target_of(*decoded);
  instruction.is_call = decoded->id == ARM64_INS_BL;
  cs_free(decoded, 1);
  return instruction;
}

}  // namespace

bool has_aarch64_disassembler() { return true; }

void disassemble_aarch64(std::uint64_t begin, ByteView code, std::vector<Instruction>& to) {
  csh handle = 0;
  if (cs_open(CS_ARCH_ARM64, CS_MODE_LITTLE_ENDIAN, &handle) != CS_ERR_OK) return;  // out of memory
  cs_option(handle, CS_OPT_DETAIL, CS_OPT_ON);
  for (std::size_t at = 0; at < code.size(); at += kAArch64Size)
    to.push_back(instruction_of(handle, begin + at,
                                ByteView(code.data() + at, std::min<std::size_t>(kAArch64Size, code.size() - at))));
  cs_close(&handle);
}

}  // namespace windlass::annotate
