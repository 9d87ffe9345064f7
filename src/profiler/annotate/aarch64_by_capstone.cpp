#include <capstone/capstone.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>

#include "os/library_function.h"
#include "profiler/annotate/disassemble.h"

namespace windlass::annotate {

namespace {

// Opened when it is first needed: its tables have 77,000 relocations, a fifth of the time in which the command starts.
struct Capstone {
  decltype(&cs_open) open = nullptr;
  decltype(&cs_option) option = nullptr;
  decltype(&cs_disasm) disasm = nullptr;
  decltype(&cs_free) free = nullptr;
  decltype(&cs_close) close = nullptr;
};

// Null: it is not installed here.
const Capstone* capstone() {
  static const std::optional<Capstone> loaded = []() -> std::optional<Capstone> {
    void* library = dlopen(WINDLASS_CAPSTONE, RTLD_NOW | RTLD_LOCAL);
    Capstone found;
    if (library == nullptr || !os::find_function(library, "cs_open", found.open) ||
        !os::find_function(library, "cs_option", found.option) ||
        !os::find_function(library, "cs_disasm", found.disasm) || !os::find_function(library, "cs_free", found.free) ||
        !os::find_function(library, "cs_close", found.close))
      return std::nullopt;
    return found;
  }();
  return loaded ? &*loaded : nullptr;
}

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

Instruction instruction_of(const Capstone& library, csh handle, std::uint64_t address, ByteView word) {
  cs_insn* decoded = nullptr;
  if (library.disasm(handle, word.u8(), word.size(), address, 1, &decoded) != 1) return aarch64_word(address, word);
  Instruction instruction{.address = address, .size = kAArch64Size, .text = decoded->mnemonic};
  if (decoded->op_str[0] != '\0') instruction.text += fmt::format(" {}", decoded->op_str);
  instruction.target = target_of(*decoded);
  instruction.is_call = decoded->id == ARM64_INS_BL;
  library.free(decoded, 1);
  return instruction;
}

}  // namespace

bool has_aarch64_disassembler() { return capstone() != nullptr; }

void disassemble_aarch64(std::uint64_t begin, ByteView code, std::vector<Instruction>& to) {
  const Capstone* library = capstone();
  csh handle = 0;
  const bool opened = library != nullptr && library->open(CS_ARCH_ARM64, CS_MODE_LITTLE_ENDIAN, &handle) == CS_ERR_OK;
  if (opened) library->option(handle, CS_OPT_DETAIL, CS_OPT_ON);
  for (std::size_t at = 0; at < code.size(); at += kAArch64Size) {
    const ByteView word(code.data() + at, std::min<std::size_t>(kAArch64Size, code.size() - at));
    to.push_back(opened ? instruction_of(*library, handle, begin + at, word) : aarch64_word(begin + at, word));
  }
  if (opened) library->close(&handle);
}

}  // namespace windlass::annotate
