// By Zydis.
#include <Zydis/Zydis.h>

#include <array>

#include "profiler/annotate/disassemble.h"

namespace windlass::annotate {

void disassemble_x86(Architecture architecture, std::uint64_t begin, ByteView code, std::vector<Instruction>& to) {
  ZydisDecoder decoder;
  ZydisFormatter formatter;
  if (architecture == Architecture::kI386)
    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LEGACY_32, ZYDIS_STACK_WIDTH_32);
  else
    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  ZydisFormatterInit(&formatter, ZYDIS_FORMATTER_STYLE_INTEL);
  ZydisFormatterSetProperty(&formatter, ZYDIS_FORMATTER_PROP_HEX_UPPERCASE, ZYAN_FALSE);
  ZydisFormatterSetProperty(&formatter, ZYDIS_FORMATTER_PROP_ADDR_PADDING_ABSOLUTE, ZYDIS_PADDING_DISABLED);
  ZydisFormatterSetProperty(&formatter, ZYDIS_FORMATTER_PROP_DISP_PADDING, ZYDIS_PADDING_DISABLED);
  ZydisFormatterSetProperty(&formatter, ZYDIS_FORMATTER_PROP_IMM_PADDING, ZYDIS_PADDING_DISABLED);
  for (std::size_t at = 0; at < code.size();) {
    ZydisDecodedInstruction decoded;
    std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
    Instruction instruction{.address = begin + at, .size = 1, .text = "(bad)"};
    if (ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, code.data() + at, code.size() - at, &decoded, operands.data()))) {
      std::array<char, 256> text{};
      const bool written = ZYAN_SUCCESS(ZydisFormatterFormatInstruction(&formatter, &decoded, operands.data(),
                                                                        decoded.operand_count_visible, text.data(),
                                                                        text.size(), instruction.address, nullptr));
      if (written) instruction.text = text.data();
      instruction.size = decoded.length;
      instruction.is_call = decoded.meta.category == ZYDIS_CATEGORY_CALL;
      ZyanU64 target = 0;
      if (decoded.meta.branch_type != ZYDIS_BRANCH_TYPE_NONE && operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
          ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(&decoded, operands.data(), instruction.address, &target)))
        instruction.target = target;
    }
    at += instruction.size;
    to.push_back(std::move(instruction));
  }
}

}  // namespace windlass::annotate
