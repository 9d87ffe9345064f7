#include "formats/winarm64/encode_codes.h"

#include <algorithm>

namespace windlass::winarm64 {
namespace {

// How a save code counts. The shortest ones come first, so that the first that can hold a save is the smallest.
struct SaveForm {
  Operation operation;
  RegisterFile file;
  bool pair;
  bool writeback;
  std::uint8_t size;            // bytes
  std::uint16_t base;           // of the code, its first byte the high one where there are two
  std::uint8_t first, last;     // registers it can start with
  std::uint8_t register_step;   // from one of them to the next
  std::uint8_t register_shift;  // of the register's field
  std::uint8_t offset_bits;     // counts 8 bytes
  std::uint8_t bias;            // subtracted from the offset: 1 where 0 would mean no move of sp
};

constexpr SaveForm kSaveForms[] = {
    {Operation::kSaveR19R20X, RegisterFile::kX, true, true, 1, 0x20, 19, 19, 1, 0, 5, 0},
    {Operation::kSaveFplr, RegisterFile::kX, true, false, 1, 0x40, kFp, kFp, 1, 0, 6, 0},
    {Operation::kSaveFplrX, RegisterFile::kX, true, true, 1, 0x80, kFp, kFp, 1, 0, 6, 1},
    {Operation::kSaveRegp, RegisterFile::kX, true, false, 2, 0xc800, 19, kFp, 1, 6, 6, 0},
    {Operation::kSaveRegpX, RegisterFile::kX, true, true, 2, 0xcc00, 19, kFp, 1, 6, 6, 1},
    {Operation::kSaveReg, RegisterFile::kX, false, false, 2, 0xd000, 19, kLr, 1, 6, 6, 0},
    {Operation::kSaveRegX, RegisterFile::kX, false, true, 2, 0xd400, 19, kLr, 1, 5, 5, 1},
    {Operation::kSaveLrpair, RegisterFile::kX, true, false, 2, 0xd600, 19, 27, 2, 6, 6, 0},
    {Operation::kSaveFregp, RegisterFile::kD, true, false, 2, 0xd800, 8, 15, 1, 6, 6, 0},
    {Operation::kSaveFregpX, RegisterFile::kD, true, true, 2, 0xda00, 8, 15, 1, 6, 6, 1},
    {Operation::kSaveFreg, RegisterFile::kD, false, false, 2, 0xdc00, 8, 15, 1, 6, 6, 0},
    {Operation::kSaveFregX, RegisterFile::kD, false, true, 2, 0xde00, 8, 15, 1, 5, 5, 1},
};

// x19 and lr: the only pair that is not of neighbours.
bool with_lr(const UnwindCode& code) { return code.pair && code.second == kLr && code.reg + 1 != code.second; }

bool can_name(const SaveForm& form, const UnwindCode& code) {
  const bool lr_form = form.operation == Operation::kSaveLrpair;
  return form.file == code.file && form.pair == code.pair && form.writeback == code.writeback &&
         lr_form == with_lr(code) && code.reg >= form.first && code.reg <= form.last &&
         (code.reg - form.first) % form.register_step == 0 && (lr_form || !code.pair || code.second == code.reg + 1);
}
bool can_hold(const SaveForm& form, std::uint32_t value) {
  const std::uint32_t scaled = value / 8;
  return value % 8 == 0 && scaled >= form.bias && scaled - form.bias < 1U << form.offset_bits;
}

void append_form(CodeBytes& to, const SaveForm& form, const UnwindCode& code) {
  const auto reg = static_cast<unsigned>((code.reg - form.first) / form.register_step);
  const unsigned word = form.base | reg << form.register_shift | (code.value / 8 - form.bias);
  if (form.size == 2) to.push_back(static_cast<std::uint8_t>(word >> 8));
  to.push_back(static_cast<std::uint8_t>(word));
}

// What the offset of a save_any_reg counts.
std::uint32_t any_unit(const UnwindCode& code) {
  return code.pair || code.writeback || code.file == RegisterFile::kQ ? 16 : 8;
}

Expected<void> append_any(CodeBytes& to, const UnwindCode& code, std::uint64_t where) {
  const bool known = code.file == RegisterFile::kX || code.file == RegisterFile::kD || code.file == RegisterFile::kQ;
  if (!known || code.reg > 31) return fail(ErrorCode::kOutOfRange, "register has no save code", where, code.reg);
  if (code.pair && code.second != code.reg + 1)
    return fail(ErrorCode::kMalformed, "registers are no pair: neighbours, or x19, x21 ... x27 with lr", where,
                code.reg);
  const std::uint32_t unit = any_unit(code);
  if (code.value % unit != 0)
    return fail(ErrorCode::kMalformed, "offset of a save_any_reg is not aligned to what is saved", where, code.value);
  const std::uint32_t scaled = code.value / unit;
  const std::uint32_t bias = code.writeback ? 1 : 0;
  if (scaled < bias || scaled - bias > 0x3f)
    return fail(ErrorCode::kOutOfRange, "offset is out of reach of every save code", where, code.value);
  const unsigned file = code.file == RegisterFile::kX ? 0 : code.file == RegisterFile::kD ? 1 : 2;
  to.push_back(0xe7);
  to.push_back(static_cast<std::uint8_t>((code.pair ? 0x40 : 0) | (code.writeback ? 0x20 : 0) | code.reg));
  to.push_back(static_cast<std::uint8_t>(file << 6 | (scaled - bias)));
  return {};
}

Expected<void> append_scalable(CodeBytes& to, const UnwindCode& code, std::uint64_t where) {
  const bool predicate = code.operation == Operation::kSavePreg;
  const unsigned first = predicate ? 0 : 8;
  if (code.reg < first || code.reg - first > 15 || code.value > 0xff)
    return fail(ErrorCode::kOutOfRange, "SVE register or offset is out of reach of its code", where, code.reg);
  to.push_back(0xe7);
  to.push_back(static_cast<std::uint8_t>((code.value & 0xc0) >> 1 | (predicate ? 0x10 : 0) | (code.reg - first)));
  to.push_back(static_cast<std::uint8_t>(0xc0 | (code.value & 0x3f)));
  return {};
}

Expected<void> append_save(CodeBytes& to, const UnwindCode& code, std::uint64_t where) {
  for (const SaveForm& form : kSaveForms) {
    if (form.operation != code.operation) continue;
    if (!can_name(form, code)) return fail(ErrorCode::kMalformed, "code cannot name these registers", where, code.reg);
    if (!can_hold(form, code.value))
      return fail(ErrorCode::kOutOfRange, "code cannot hold this offset", where, code.value);
    append_form(to, form, code);
    return {};
  }
  return fail(ErrorCode::kUnsupported, "undefined unwind codes are not written", where);
}

// `bits` of the value in units of `unit`, or an error.
Expected<unsigned> scaled(const UnwindCode& code, unsigned unit, unsigned bits, std::uint64_t where) {
  if (code.value % unit != 0)
    return fail(ErrorCode::kMalformed, "size is no multiple of what its code counts", where, code.value);
  if (code.value / unit >= 1U << bits)
    return fail(ErrorCode::kOutOfRange, "size is larger than its code can hold", where, code.value);
  return code.value / unit;
}

struct PlainForm {
  Operation operation;
  std::uint8_t byte;
};
constexpr PlainForm kPlainForms[] = {
    {Operation::kSetFp, 0xe1},
    {Operation::kNop, 0xe3},
    {Operation::kEnd, 0xe4},
    {Operation::kEndC, 0xe5},
    {Operation::kSaveNext, 0xe6},
    {Operation::kTrapFrame, 0xe8},
    {Operation::kMachineFrame, 0xe9},
    {Operation::kContext, 0xea},
    {Operation::kEcContext, 0xeb},
    {Operation::kPacSignLr, 0xfc},
    {Operation::kClearUnwoundToCall, 0xec},
};

}  // namespace

Expected<void> append_code(CodeBytes& to, const UnwindCode& code, std::uint64_t where) {
  for (const PlainForm& form : kPlainForms) {
    if (form.operation != code.operation) continue;
    to.push_back(form.byte);
    return {};
  }
  const auto with = [&](unsigned unit, unsigned bits, std::initializer_list<unsigned> shifts, unsigned base) {
    const auto value = scaled(code, unit, bits, where);
    if (!value) return Expected<void>(Failure(value.error()));
    for (const unsigned shift : shifts) {
      to.push_back(static_cast<std::uint8_t>(base | *value >> shift));
      base = 0;
    }
    return Expected<void>();
  };
  switch (code.operation) {
    case Operation::kAllocS: return with(16, 5, {0}, 0);
    case Operation::kAllocM: return with(16, 11, {8, 0}, 0xc0);
    case Operation::kAllocL: to.push_back(0xe0); return with(16, 24, {16, 8, 0}, 0);
    case Operation::kAddFp: to.push_back(0xe2); return with(8, 8, {0}, 0);
    case Operation::kAllocZ: to.push_back(0xdf); return with(1, 8, {0}, 0);
    case Operation::kSaveAnyReg: return append_any(to, code, where);
    case Operation::kSaveZreg:
    case Operation::kSavePreg: return append_scalable(to, code, where);
    default: return append_save(to, code, where);
  }
}

namespace {

// Longest reach of the one instruction that can do this save: LDP and STP count 7 bits with sign in units of what they
// store, pre- and post-indexed LDR and STR 9 bits of bytes (Arm ARM, C6.2).
std::uint32_t reach(const UnwindCode& code) {
  const std::uint32_t unit = code.file == RegisterFile::kQ ? 16 : 8;
  if (!code.pair) return code.writeback ? 256 : 4095 * unit;
  return code.writeback ? 64 * unit : 63 * unit;
}

Expected<UnwindCode> smallest_save(UnwindCode code, std::uint64_t where) {
  const unsigned last = code.file == RegisterFile::kX ? kLr : 31;
  if (code.reg > last || (code.pair && code.second > last))
    return fail(ErrorCode::kOutOfRange, "register that is saved does not exist", where, code.reg);
  if (code.value > reach(code))
    return fail(ErrorCode::kOutOfRange, "no one instruction saves registers that far from sp", where, code.value);
  for (const SaveForm& form : kSaveForms) {
    // A pair that is stored at sp without moving it has a code of its own.
    if (!can_name(form, code) || !can_hold(form, code.value) || (code.writeback && code.value == 0)) continue;
    code.operation = form.operation;
    code.size = form.size;
    return code;
  }
  if (with_lr(code) && code.writeback)
    return fail(ErrorCode::kUnsupported, "no unwind code moves sp and saves lr with another register", where, code.reg);
  code.operation = Operation::kSaveAnyReg;
  code.size = 3;
  CodeBytes tried;
  if (const auto done = append_any(tried, code, where); !done) return Failure(done.error());
  return code;
}

Expected<UnwindCode> smallest_alloc(UnwindCode code, std::uint64_t where) {
  if (code.value % 16 != 0)
    return fail(ErrorCode::kMalformed, "allocation is no multiple of 16 bytes", where, code.value);
  const std::uint32_t units = code.value / 16;
  if (units >= 1U << 24)
    return fail(ErrorCode::kOutOfRange, "allocation of 256 MiB or more has no unwind code", where, code.value);
  code.operation = units < 32 ? Operation::kAllocS : units < 1U << 11 ? Operation::kAllocM : Operation::kAllocL;
  code.size = units < 32 ? 1 : units < 1U << 11 ? 2 : 4;
  return code;
}

}  // namespace

Expected<UnwindCode> smallest(const UnwindCode& code, std::uint64_t where) {
  switch (code.operation) {
    case Operation::kAllocS:
    case Operation::kAllocM:
    case Operation::kAllocL: return smallest_alloc(code, where);
    case Operation::kSetFp:
    case Operation::kAddFp: {
      UnwindCode smaller = code;
      smaller.operation = code.value == 0 ? Operation::kSetFp : Operation::kAddFp;
      smaller.size = code.value == 0 ? 1 : 2;
      CodeBytes tried;
      if (const auto done = append_code(tried, smaller, where); !done) return Failure(done.error());
      return smaller;
    }
    case Operation::kSaveZreg:
    case Operation::kSavePreg: return code;
    default: return code.saves() ? smallest_save(code, where) : code;
  }
}

namespace {

// Codes that save_next may count up from.
bool counts_up(const UnwindCode& code) {
  return code.operation == Operation::kSaveRegp || code.operation == Operation::kSaveRegpX ||
         code.operation == Operation::kSaveR19R20X;
}

}  // namespace

void use_save_next(std::vector<UnwindCode>& codes) {
  if (codes.empty()) return;
  // Backwards, in the order of the prologue: the pair below is known in full when the one above is looked at.
  UnwindCode below = codes.back();
  for (std::size_t i = codes.size() - 1; i-- > 0;) {
    const UnwindCode code = codes[i];
    if (counts_up(below) && code.operation == Operation::kSaveRegp && code.reg == below.reg + 2 && code.reg <= 27 &&
        code.value == (below.writeback ? 0 : below.value) + 16) {
      codes[i] = UnwindCode();
      codes[i].operation = Operation::kSaveNext;
    }
    below = code;
  }
}

Expected<void> resolve_save_next(std::vector<UnwindCode>& codes) {
  for (std::size_t i = codes.size(); i-- > 0;) {
    if (codes[i].operation != Operation::kSaveNext) continue;
    const bool lr = i + 1 < codes.size() && codes[i + 1].operation == Operation::kSaveLrpair;
    if (i + 1 == codes.size() || !codes[i + 1].pair || lr)
      return fail(ErrorCode::kMalformed, "save_next without a pair", i);
    UnwindCode above = codes[i + 1];
    above.value = (above.writeback ? 0 : above.value) + (above.file == RegisterFile::kQ ? 32 : 16);
    above.reg = static_cast<std::uint8_t>(above.reg + 2);
    above.second = static_cast<std::uint8_t>(above.second + 2);
    above.writeback = false;
    above.operation = Operation::kSaveRegp;
    const auto named = smallest(above, i);
    if (!named) return Failure(named.error());
    codes[i] = *named;
  }
  return {};
}

}  // namespace windlass::winarm64
