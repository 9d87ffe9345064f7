// The library is preloaded into every process of a command, which may have no Zydis. These stand in for it: code
// without unwind information is not followed, and stacks end there or go on by the frame pointer.
#include <Zydis/Zydis.h>

extern "C" {
ZyanStatus ZydisDecoderInit(ZydisDecoder*, ZydisMachineMode, ZydisStackWidth) { return ZYAN_STATUS_FAILED; }
ZyanStatus ZydisDecoderDecodeFull(const ZydisDecoder*, const void*, ZyanUSize, ZydisDecodedInstruction*,
                                  ZydisDecodedOperand*) {
  return ZYAN_STATUS_FAILED;
}
ZydisRegister ZydisRegisterGetLargestEnclosing(ZydisMachineMode, ZydisRegister reg) { return reg; }
}
