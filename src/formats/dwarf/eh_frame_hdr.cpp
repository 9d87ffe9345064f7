#include "formats/dwarf/eh_frame_hdr.h"

#include <algorithm>

#include "formats/dwarf/cfi_entry.h"

namespace windlass::dwarf {
namespace {

constexpr std::uint64_t kPair = 8;  // bytes of the table's entries

}  // namespace

[[gnu::hot]] Expected<EhFrameHdr> EhFrameHdr::parse(ByteView bytes, std::uint64_t address) {
  if (bytes.size() < 4) return fail(ErrorCode::kTruncated, ".eh_frame_hdr is too short", bytes.origin(), bytes.size());
  const std::uint8_t* data = bytes.u8();
  if (data[0] != 1) return fail(ErrorCode::kUnsupported, "unknown .eh_frame_hdr version", bytes.origin(), data[0]);
  CfiSection section;
  section.name = ".eh_frame_hdr";
  section.bytes = bytes;
  section.address = address;
  section.data_address = address;
  EhFrameHdr header;
  header.address = address;
  std::uint64_t at = 4;
  const auto eh_frame = read_encoded_pointer(section, at, data[1], 8, 0);
  if (!eh_frame) return Failure(eh_frame.error());
  if (data[1] == DW_EH_PE_omit || eh_frame->indirect)
    return fail(ErrorCode::kUnsupported, ".eh_frame_hdr does not say where .eh_frame is", bytes.origin() + 1, data[1]);
  header.eh_frame_address = eh_frame->value;
  if (data[2] == DW_EH_PE_omit || data[3] != (DW_EH_PE_datarel | DW_EH_PE_sdata4)) return header;
  const auto count = read_encoded_pointer(section, at, data[2], 8, 0);
  if (!count) return header;  // .eh_frame itself can still be read
  header.fde_count = std::min<std::uint64_t>(count->value, (bytes.size() - at) / kPair);
  header.table = *bytes.sub(at, header.fde_count * kPair);
  return header;
}

[[gnu::hot]] std::uint64_t EhFrameHdr::value(std::uint64_t index, std::uint64_t field) const {
  return address + static_cast<std::uint64_t>(std::int64_t{load<std::int32_t>(table.u8() + index * kPair + field * 4)});
}

// How many functions start at or before `pc`. Without a branch that depends on `pc`: nothing could predict it.
[[gnu::hot]] std::uint64_t EhFrameHdr::count_until(std::uint64_t pc) const {
  const std::uint8_t* const begin = table.u8();
  const std::uint8_t* low = begin;
  std::uint64_t rest = fde_count;
  const auto starts_until = [&](const std::uint8_t* pair) {
    return address + static_cast<std::uint64_t>(std::int64_t{load<std::int32_t>(pair)}) <= pc;
  };
  while (rest > 1) {
    const std::uint64_t half = rest / 2;
    low += starts_until(low + (half - 1) * kPair) ? half * kPair : 0;
    rest -= half;
  }
  return static_cast<std::uint64_t>(low - begin) / kPair + (rest != 0 && starts_until(low) ? 1 : 0);
}

Expected<std::uint64_t> EhFrameHdr::fde_address(std::uint64_t pc) const {
  const std::uint64_t behind = count_until(pc);
  if (behind == 0) return fail(ErrorCode::kNotFound, "no function at or before the address", pc);
  return value(behind - 1, 1);
}

[[gnu::hot]] Expected<void> EhFrameHdr::find(const CfiSection& eh_frame, std::uint64_t pc, LocatedFde& found) const {
  const auto ignore = [](const Error&) {};
  const EntryParser parser(eh_frame);
  std::uint64_t index = count_until(pc);
  // Ranges may nest or repeat: a few entries back may still cover the address.
  for (int tries = 0; tries < 4 && index != 0; ++tries) {
    --index;
    const std::uint64_t offset = value(index, 1) - eh_frame.address;
    if (found.cie_of == eh_frame.bytes.data() && parser.parse_usual_fde(offset, found.cie, found.fde)) {
      if (pc - found.fde.begin < found.fde.end - found.fde.begin) return {};
      continue;
    }
    const auto header = parser.header_at(offset);
    if (!header) return Failure(header.error());
    if (header->is_cie) return parser.error(ErrorCode::kMalformed, "a CIE where an FDE is expected", offset);
    std::uint64_t cie_offset = 0;
    Error problem;
    if (!parser.cie_offset(*header, cie_offset, problem)) return Failure(problem);
    if (found.cie_of != eh_frame.bytes.data() || found.cie.offset != cie_offset) {
      found.cie_of = nullptr;
      const auto cie_header = parser.header_at(cie_offset);
      if (!cie_header) return Failure(cie_header.error());
      if (!cie_header->is_cie)
        return parser.error(ErrorCode::kMalformed, "FDE without a usable CIE", offset, cie_offset);
      auto cie = parser.parse_cie(*cie_header);
      if (!cie) return Failure(cie.error());
      found.cie = *cie;
      found.cie_of = eh_frame.bytes.data();
    }
    if (!parser.parse_fde(*header, found.cie, found.fde, problem, ignore)) return Failure(problem);
    if (pc - found.fde.begin < found.fde.end - found.fde.begin) return {};
  }
  return fail(ErrorCode::kNotFound, "no row covers the address", pc);
}

}  // namespace windlass::dwarf
