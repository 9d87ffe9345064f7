// The unwind codes: the table of "Unwind codes" in the page, with what it leaves out.
#include <array>

#include "formats/winarm64/read.h"

namespace windlass::winarm64 {
namespace {

struct Encoding {
  std::uint8_t first;  // values of the first byte
  std::uint8_t last;
  Operation operation;
  std::uint8_t size;
  std::uint8_t instructions;
  std::string_view name;
};

// E8-EC count as no instruction: they stand in front of the code of a trampoline that the system calls, not in a
// prologue (.NET: UnwindCodeInstructionCountTable). The page has trap_frame to clear_unwound_to_call one code higher
// than .NET and LLVM, which agree. F8-FB carry 1 to 4 bytes of operand.
constexpr Encoding kEncodings[] = {
    {0x00, 0x1f, Operation::kAllocS, 1, 1, "alloc_s"},
    {0x20, 0x3f, Operation::kSaveR19R20X, 1, 1, "save_r19r20_x"},
    {0x40, 0x7f, Operation::kSaveFplr, 1, 1, "save_fplr"},
    {0x80, 0xbf, Operation::kSaveFplrX, 1, 1, "save_fplr_x"},
    {0xc0, 0xc7, Operation::kAllocM, 2, 1, "alloc_m"},
    {0xc8, 0xcb, Operation::kSaveRegp, 2, 1, "save_regp"},
    {0xcc, 0xcf, Operation::kSaveRegpX, 2, 1, "save_regp_x"},
    {0xd0, 0xd3, Operation::kSaveReg, 2, 1, "save_reg"},
    {0xd4, 0xd5, Operation::kSaveRegX, 2, 1, "save_reg_x"},
    {0xd6, 0xd7, Operation::kSaveLrpair, 2, 1, "save_lrpair"},
    {0xd8, 0xd9, Operation::kSaveFregp, 2, 1, "save_fregp"},
    {0xda, 0xdb, Operation::kSaveFregpX, 2, 1, "save_fregp_x"},
    {0xdc, 0xdd, Operation::kSaveFreg, 2, 1, "save_freg"},
    {0xde, 0xde, Operation::kSaveFregX, 2, 1, "save_freg_x"},
    {0xdf, 0xdf, Operation::kAllocZ, 2, 1, "alloc_z"},
    {0xe0, 0xe0, Operation::kAllocL, 4, 1, "alloc_l"},
    {0xe1, 0xe1, Operation::kSetFp, 1, 1, "set_fp"},
    {0xe2, 0xe2, Operation::kAddFp, 2, 1, "add_fp"},
    {0xe3, 0xe3, Operation::kNop, 1, 1, "nop"},
    {0xe4, 0xe4, Operation::kEnd, 1, 1, "end"},
    {0xe5, 0xe5, Operation::kEndC, 1, 1, "end_c"},
    {0xe6, 0xe6, Operation::kSaveNext, 1, 1, "save_next"},
    {0xe7, 0xe7, Operation::kSaveAnyReg, 3, 1, "save_any_reg"},
    {0xe8, 0xe8, Operation::kTrapFrame, 1, 0, "trap_frame"},
    {0xe9, 0xe9, Operation::kMachineFrame, 1, 0, "machine_frame"},
    {0xea, 0xea, Operation::kContext, 1, 0, "context"},
    {0xeb, 0xeb, Operation::kEcContext, 1, 0, "ec_context"},
    {0xec, 0xec, Operation::kClearUnwoundToCall, 1, 0, "clear_unwound_to_call"},
    {0xed, 0xf7, Operation::kReserved, 1, 0, "reserved"},
    {0xf8, 0xf8, Operation::kReservedNop, 2, 1, "reserved_nop"},
    {0xf9, 0xf9, Operation::kReservedNop, 3, 1, "reserved_nop"},
    {0xfa, 0xfa, Operation::kReservedNop, 4, 1, "reserved_nop"},
    {0xfb, 0xfb, Operation::kReservedNop, 5, 1, "reserved_nop"},
    {0xfc, 0xfc, Operation::kPacSignLr, 1, 1, "pac_sign_lr"},
    {0xfd, 0xff, Operation::kReservedNop, 1, 1, "reserved_nop"},
};

consteval std::array<std::uint8_t, 256> make_index() {
  std::array<std::uint8_t, 256> index{};
  for (std::size_t i = 0; i < std::size(kEncodings); ++i)
    for (unsigned byte = kEncodings[i].first; byte <= kEncodings[i].last; ++byte)
      index[byte] = static_cast<std::uint8_t>(i);
  return index;
}
constexpr std::array<std::uint8_t, 256> kIndex = make_index();

const Encoding& encoding_of(std::uint8_t first) { return kEncodings[kIndex[first]]; }

void save(UnwindCode& code, RegisterFile file, unsigned reg, bool pair, std::uint32_t value, bool writeback) {
  code.file = file;
  code.reg = static_cast<std::uint8_t>(reg);
  code.second = static_cast<std::uint8_t>(pair ? reg + 1 : 0);
  code.pair = pair;
  code.value = value;
  code.writeback = writeback;
}

// 0pxrrrrr ffoooooo: r the register, f its file (x, d, q), p a pair, x written back. The offset counts 16 bytes for
// pairs, for q, and with write-back, where it is one larger. Otherwise it counts 8 bytes. f = 3 is SVE. 0oo0rrrr
// 11oooooo: a z register from z8 on. 0oo1rrrr 11oooooo: a p register.
void decode_e7(UnwindCode& code, unsigned second, unsigned third) {
  if ((second & 0x80) != 0) {
    code.operation = Operation::kReserved;
    return;
  }
  const unsigned file = third >> 6;
  if (file == 3) {
    const unsigned offset = (second & 0x60) << 1 | (third & 0x3f);
    const bool predicate = (second & 0x10) != 0;
    code.operation = predicate ? Operation::kSavePreg : Operation::kSaveZreg;
    save(code, predicate ? RegisterFile::kP : RegisterFile::kZ, (second & 15) + (predicate ? 0 : 8), false, offset,
         false);
    return;
  }
  const bool pair = (second & 0x40) != 0;
  const bool writeback = (second & 0x20) != 0;
  const unsigned unit = pair || writeback || file == 2 ? 16 : 8;
  constexpr RegisterFile kFiles[] = {RegisterFile::kX, RegisterFile::kD, RegisterFile::kQ};
  save(code, kFiles[file], second & 0x1f, pair, ((third & 0x3f) + (writeback ? 1 : 0)) * unit, writeback);
}

// `b`: its bytes, all there.
void decode(UnwindCode& code, const std::uint8_t* b) {
  const unsigned low = code.size >= 2 ? b[1] : 0;
  const unsigned z8 = (low & 0x3f) * 8;             // zzzzzz: [sp + z*8]
  const unsigned z8_x = ((low & 0x3f) + 1) * 8;     // [sp - (z+1)*8]!
  const unsigned x4 = (b[0] & 3U) << 2 | low >> 6;  // xx'xx
  const unsigned x3 = (b[0] & 1U) << 2 | low >> 6;  // x'xx
  switch (code.operation) {
    case Operation::kAllocS: code.value = (b[0] & 0x1fU) * 16; break;
    // The page's text says less than 16K; 11 bits of 16 bytes reach 32K, which .NET's comment has.
    case Operation::kAllocM: code.value = ((b[0] & 7U) << 8 | low) * 16; break;
    case Operation::kAllocL: code.value = (low << 16 | static_cast<unsigned>(b[2]) << 8 | b[3]) * 16; break;
    case Operation::kAllocZ: code.value = low; break;
    case Operation::kAddFp: code.value = low * 8; break;
    case Operation::kSaveR19R20X:
      save(code, RegisterFile::kX, 19, true, (b[0] & 0x1fU) * 8, true);  // z, not z+1
      break;
    case Operation::kSaveFplr: save(code, RegisterFile::kX, 29, true, (b[0] & 0x3fU) * 8, false); break;
    case Operation::kSaveFplrX: save(code, RegisterFile::kX, 29, true, ((b[0] & 0x3fU) + 1) * 8, true); break;
    case Operation::kSaveRegp: save(code, RegisterFile::kX, 19 + x4, true, z8, false); break;
    case Operation::kSaveRegpX: save(code, RegisterFile::kX, 19 + x4, true, z8_x, true); break;
    case Operation::kSaveReg: save(code, RegisterFile::kX, 19 + x4, false, z8, false); break;
    case Operation::kSaveRegX:
      save(code, RegisterFile::kX, 19 + ((b[0] & 1U) << 3 | low >> 5), false, ((low & 0x1f) + 1) * 8, true);
      break;
    case Operation::kSaveLrpair:
      save(code, RegisterFile::kX, 19 + 2 * x3, true, z8, false);
      code.second = 30;
      break;
    case Operation::kSaveFregp: save(code, RegisterFile::kD, 8 + x3, true, z8, false); break;
    case Operation::kSaveFregpX: save(code, RegisterFile::kD, 8 + x3, true, z8_x, true); break;
    case Operation::kSaveFreg: save(code, RegisterFile::kD, 8 + x3, false, z8, false); break;
    case Operation::kSaveFregX:
      save(code, RegisterFile::kD, 8 + (low >> 5), false, ((low & 0x1f) + 1) * 8, true);
      break;
    case Operation::kSaveAnyReg: decode_e7(code, low, b[2]); break;
    default: break;
  }
}

}  // namespace

std::string_view operation_name(Operation operation) {
  if (operation == Operation::kSaveZreg) return "save_zreg";
  if (operation == Operation::kSavePreg) return "save_preg";
  for (const Encoding& encoding : kEncodings)
    if (encoding.operation == operation) return encoding.name;
  return "reserved";
}

std::uint8_t code_size(std::uint8_t first) { return encoding_of(first).size; }
std::uint8_t code_instructions(std::uint8_t first) { return encoding_of(first).instructions; }

Expected<UnwindCode> code_at(ByteView codes, std::uint64_t index) {
  if (index >= codes.size())
    return fail(ErrorCode::kTruncated, "unwind codes end without an end code", codes.origin() + index);
  const std::uint8_t* const bytes = codes.u8() + index;
  const Encoding& encoding = encoding_of(bytes[0]);
  if (encoding.size > codes.size() - index)
    return fail(ErrorCode::kTruncated, "unwind code reaches past the record's codes", codes.origin() + index, bytes[0]);
  UnwindCode code;
  code.operation = encoding.operation;
  code.size = encoding.size;
  code.instructions = encoding.instructions;
  decode(code, bytes);
  return code;
}

std::uint32_t count_instructions(ByteView codes, std::uint64_t index) {
  std::uint32_t count = 0;
  while (index < codes.size()) {
    const Encoding& encoding = encoding_of(codes.u8()[index]);
    if (encoding.operation == Operation::kEnd || encoding.operation == Operation::kEndC) break;
    count += encoding.instructions;
    index += encoding.size;
  }
  return count;
}

}  // namespace windlass::winarm64
