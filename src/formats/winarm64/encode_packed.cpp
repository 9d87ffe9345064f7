// Which frames have a packed entry. The meaning of an entry is defined in one place, read_packed.cpp. So the writer
// expands a candidate there, and compares the result with the function.
#include <algorithm>

#include "formats/winarm64/encode.h"
#include "formats/winarm64/encode_codes.h"

namespace windlass::winarm64 {
namespace {

constexpr std::uint32_t kMaxPackedFrame = 0x1ff * 16;
constexpr std::uint8_t kFirstSaved = 19, kLastSaved = 28;

// The fields that a prologue of these codes would have if it is canonical.
PackedFields guess(const std::vector<UnwindCode>& prologue, std::uint32_t length) {
  PackedFields fields;
  fields.length = length;
  unsigned vectors = 0;
  bool lr = false, fp = false, pac = false;
  const auto saved = [&](RegisterFile file, unsigned reg) {
    if (file == RegisterFile::kD) ++vectors;
    if (file != RegisterFile::kX) return;
    if (reg >= kFirstSaved && reg <= kLastSaved) ++fields.reg_i;
    lr |= reg == kLr;
    fp |= reg == kFp;
  };
  for (const UnwindCode& code : prologue) {
    if (code.saves()) {
      saved(code.file, code.reg);
      if (code.pair) saved(code.file, code.second);
    }
    pac |= code.operation == Operation::kPacSignLr;
    const bool moves = code.saves() ? code.writeback : code.operation != Operation::kAddFp;
    if (moves) fields.frame_size += code.value;
  }
  if (vectors > 1) fields.reg_f = static_cast<std::uint8_t>(std::min(vectors - 1, 255U));
  fields.cr = pac ? 2 : fp ? 3 : lr ? 1 : 0;
  return fields;
}

// Each instruction by its smallest code, which makes equal ones equal.
std::optional<CodeBytes> plain(std::vector<UnwindCode> codes) {
  if (!resolve_save_next(codes)) return std::nullopt;
  CodeBytes bytes;
  for (const UnwindCode& code : codes) {
    const auto same = smallest(code, 0);
    if (!same || !append_code(bytes, *same, 0)) return std::nullopt;
  }
  return bytes;
}

// Nops at the end of a prologue (the first codes) change nothing: what follows unwinds the same.
CodeBytes without_nops(CodeBytes bytes) {
  bytes.erase(bytes.begin(), std::find_if(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte != 0xe3; }));
  return bytes;
}

// Canonical epilogues have no `mov sp, x29`. In front of one it is as much the body's, where the prologue's last code
// is `mov x29, sp`: that of a chained frame.
EpilogueCodes without_set_fp(const EpilogueCodes& epilogue, bool chained) {
  if (!chained || epilogue.codes.empty() || epilogue.codes.front().operation != Operation::kSetFp) return epilogue;
  return {epilogue.start + 4, {epilogue.codes.begin() + 1, epilogue.codes.end()}};
}

// Is it what the entry stands for?
bool stands_for(std::uint32_t word, const RecordContents& contents) {
  const RuntimeFunction entry{0, word};
  Expansion expansion;
  if (!expansion.expand(packed_fields(entry), entry.kind() == EntryKind::kPackedFragment, 0)) return false;
  UnwindRecord record;
  record.length = contents.length;
  record.codes = expansion.codes();
  record.single_epilogue = expansion.epilogue_index() != Expansion::kNoEpilogue;
  record.epilogue_index = record.single_epilogue ? expansion.epilogue_index() : 0;
  const auto expanded = decode(record);
  if (!expanded) return false;
  const auto ours = plain(contents.prologue), theirs = plain(expanded->prologue);
  if (!ours || !theirs || without_nops(*ours) != without_nops(*theirs)) return false;

  if (expanded->epilogues.empty()) return contents.epilogues.empty();
  // Where nothing is done, the return is where it always was.
  if (contents.prologue.empty() && contents.epilogues.empty()) return true;
  if (contents.epilogues.size() != 1) return false;
  const EpilogueCodes epilogue = without_set_fp(contents.epilogues[0], packed_fields(entry).cr >= 2);
  // The prologue is looked for first: one with nops at its end must not reach into the epilogue.
  if (count_instructions(record.codes, 0) * 4 > epilogue.start) return false;
  return epilogue.start == expanded->epilogues[0].start && plain(epilogue.codes) == plain(expanded->epilogues[0].codes);
}

}  // namespace

Expected<std::uint32_t> encode_packed(const PackedFields& fields, bool fragment) {
  if (fields.length % 4 != 0)
    return fail(ErrorCode::kMalformed, "length of the code is no multiple of 4", 0, fields.length);
  if (fields.length > kMaxPackedLength)
    return fail(ErrorCode::kOutOfRange, "a packed entry covers at most 8,188 bytes of code", 0, fields.length);
  if (fields.frame_size % 16 != 0)
    return fail(ErrorCode::kMalformed, "frame is no multiple of 16 bytes", 0, fields.frame_size);
  if (fields.frame_size > kMaxPackedFrame)
    return fail(ErrorCode::kOutOfRange, "a packed entry's frame has at most 8,176 bytes", 0, fields.frame_size);
  if (fields.reg_f > 7 || fields.cr > 3)
    return fail(ErrorCode::kOutOfRange, "RegF is at most 7 and CR at most 3", 0, fields.reg_f);
  Expansion expansion;
  if (const auto done = expansion.expand(fields, fragment, 0); !done) return Failure(done.error());
  return (fragment ? 2U : 1U) | fields.length / 4 << 2 | std::uint32_t{fields.reg_f} << 13 |
         std::uint32_t{fields.reg_i} << 16 | (fields.h ? 1U << 20 : 0) | std::uint32_t{fields.cr} << 21 |
         fields.frame_size / 16 << 23;
}

std::optional<std::uint32_t> packed_form(const RecordContents& contents) {
  if (contents.handler) return std::nullopt;
  const bool fragment = !contents.prologue.empty() && contents.prologue.front().operation == Operation::kEndC;
  std::vector<UnwindCode> prologue = contents.prologue;
  if (!resolve_save_next(prologue)) return std::nullopt;
  // Without H = 1. Windows takes the four instructions before the epilogue for a part of it there, as if the homing
  // were undone (measured in 2022, LLVM issue 54879). LLVM does not write the form either.
  const auto word = encode_packed(guess(prologue, contents.length), fragment);
  return word && stands_for(*word, contents) ? std::optional(*word) : std::nullopt;
}

}  // namespace windlass::winarm64
