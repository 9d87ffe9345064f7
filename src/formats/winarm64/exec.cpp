#include "formats/winarm64/exec.h"

namespace windlass::winarm64 {

std::uint32_t skip_codes(ByteView codes, std::uint32_t index, std::uint32_t count) {
  for (; count > 0 && index < codes.size(); --count) {
    const std::uint8_t first = codes.u8()[index];
    if ((first & 0xfe) == 0xe4) break;  // end, end_c
    index += code_size(first);
  }
  return index;
}

// The order is .NET's: prologue, then the epilogue at the end or the scopes, the first of which that contains the pc
// counts, and the scopes are given up at the first that starts behind it. Codes are skipped one for an instruction,
// even those that stand for none.
Position position_at(const UnwindRecord& record, std::uint32_t offset) {
  const ByteView codes = record.codes;
  const std::uint32_t word = offset / 4;
  // Each byte of code is one instruction at most, so most of a function needs no counting.
  if (word < codes.size()) {
    const std::uint32_t size = count_instructions(codes, 0);
    if (word < size) return {Place::kPrologue, skip_codes(codes, 0, size - word)};
  }
  if (record.single_epilogue) {
    const std::uint32_t words = record.length / 4;
    const std::uint32_t index = record.epilogue_index;
    if (index > codes.size() || word + (codes.size() - index) + 1 < words) return {};
    const std::uint32_t size = count_instructions(codes, index) + 1;
    // The page says of one that starts at the function's end minus its codes; the return or jump counts as well.
    if (size <= words && word >= words - size)
      return {Place::kEpilogue, skip_codes(codes, index, word - (words - size))};
    return {};
  }
  for (std::uint32_t i = 0; i < record.scope_count(); ++i) {
    const EpilogueScope scope = record.scope(i);
    const std::uint32_t start = scope.start / 4;
    if (word < start) break;
    if (scope.index > codes.size() || word - start > codes.size() - scope.index) continue;
    const std::uint32_t size = count_instructions(codes, scope.index) + 1;
    if (word < start + size) return {Place::kEpilogue, skip_codes(codes, scope.index, word - start)};
  }
  return {};
}

Expected<Location> locate(const Functions& functions, std::uint32_t rva, Expansion& storage) {
  Location location;
  location.position.place = Place::kLeaf;
  const auto candidate = functions.candidate(rva);
  if (!candidate) return location;
  if (candidate->kind() == EntryKind::kParent) {
    // It has no length of its own: it holds up to the next entry. .NET unwinds it as if the parent's first instruction
    // had not run yet, in spite of the name.
    const auto parent = parent_of(functions.image(), *candidate);
    if (!parent) return Failure(parent.error());
    const auto record = read_record(functions.image(), *parent, storage);
    if (!record) return Failure(record.error());
    location = {*candidate, *record, position_at(*record, 0)};
    return location;
  }
  const auto record = read_record(functions.image(), *candidate, storage);
  if (!record) return Failure(record.error());
  const std::uint32_t offset = rva - candidate->begin;
  if (offset < record->length) location = {*candidate, *record, position_at(*record, offset)};
  return location;
}

}  // namespace windlass::winarm64
