#include "winx64/instruction_length.h"

#include <Zydis/Zydis.h>

namespace windlass::winx64 {
namespace {

const ZydisDecoder& decoder() {
  static const ZydisDecoder made = [] {
    ZydisDecoder decoder;
    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    return decoder;
  }();
  return made;
}

}  // namespace

unsigned instruction_length(ByteView code) {
  ZydisDecodedInstruction instruction;
  return ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder(), nullptr, code.data(), code.size(), &instruction))
             ? instruction.length
             : 0;
}

}  // namespace windlass::winx64
