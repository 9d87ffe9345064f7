#include "flow/x86_64_decoder.h"

#include <cstring>

namespace windlass::flow {
namespace {

void take(const ZydisDecodedOperand& from, X86Operand& to) {
  to = {.type = from.type, .size = from.size, .actions = from.actions, .mem = {}};
  switch (from.type) {
    case ZYDIS_OPERAND_TYPE_REGISTER: to.reg = {from.reg.value}; break;
    case ZYDIS_OPERAND_TYPE_MEMORY:
      to.mem = {from.mem.segment,
                from.mem.base,
                from.mem.index,
                from.mem.scale,
                {from.mem.disp.has_displacement != 0, from.mem.disp.value}};
      break;
    case ZYDIS_OPERAND_TYPE_IMMEDIATE: to.imm = {from.imm.is_signed != 0, {from.imm.value.u}}; break;
    default: break;
  }
}

}  // namespace

X86Decoder::X86Decoder() {
  ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  for (Key& key : keys_) key.size = 0;
}

const X86Instruction* X86Decoder::decode(CodeReader& code, std::uint64_t pc) {
  Key key{};
  key.size = static_cast<std::uint8_t>(code.read(pc, key.bytes, sizeof key.bytes));
  if (key.size == 0) return nullptr;
  const std::uint64_t place = pc * 0x9e37'79b9'7f4a'7c15 >> (64 - kKeptBits);
  X86Instruction& kept = kept_[place];
  if (std::memcmp(&keys_[place], &key, sizeof key) == 0) return &kept;
  ZydisDecodedInstruction info;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder_, key.bytes, key.size, &info, operands))) return nullptr;
  kept.mnemonic = info.mnemonic;
  kept.category = info.meta.category;
  kept.length = info.length;
  kept.operand_count = info.operand_count;
  kept.operand_width = info.operand_width;
  kept.address_width = info.address_width;
  // Some are asked about that an instruction may not have.
  constexpr unsigned kAlways = 2;
  for (unsigned i = 0; i < kAlways || i < info.operand_count; ++i) take(operands[i], kept.operands[i]);
  keys_[place] = key;
  return &kept;
}

}  // namespace windlass::flow
