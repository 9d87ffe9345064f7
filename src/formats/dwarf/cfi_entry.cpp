#include "formats/dwarf/cfi_entry.h"

#include <algorithm>
#include <string_view>

namespace windlass::dwarf {
namespace {

// Bounds against entries that overlap: FDEs may each name another "CIE" within the same bytes, so what reading one CIE
// costs must be small. Real ones have 5 characters and under 40 bytes of instructions.
constexpr std::uint64_t kMaxAugmentation = 64;
constexpr std::uint64_t kMaxInitialInstructions = 1024;

// A string that ends in the entry. By hand: memchr is a call into a page of code that the first walk of a process would
// have to wait for.
[[gnu::hot]] bool read_terminated(const ByteView& entry, ByteCursor& cursor, std::string_view& to) {
  const auto* const text = entry.u8() + cursor.position();
  const std::uint64_t longest = std::min<std::uint64_t>(entry.size() - cursor.position(), kMaxAugmentation);
  std::uint64_t letters = 0;
  while (letters < longest && text[letters] != 0) ++letters;
  if (letters == longest) return false;
  to = std::string_view(reinterpret_cast<const char*>(text), letters);
  (void)cursor.bytes(letters + 1);
  return true;
}

template <typename T>
Expected<std::uint64_t> read_extended(ByteCursor& cursor) {
  const auto value = cursor.read<T>();
  if (!value) return Failure(value.error());
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(*value));  // sign- or zero-extended as T is
}

[[gnu::hot]] Expected<std::uint64_t> read_format(ByteCursor& cursor, std::uint8_t format, std::uint8_t address_size) {
  switch (format) {
    case DW_EH_PE_absptr:
      return address_size == 4 ? read_extended<std::uint32_t>(cursor) : cursor.read<std::uint64_t>();
    case DW_EH_PE_signed: return address_size == 4 ? read_extended<std::int32_t>(cursor) : cursor.read<std::uint64_t>();
    case DW_EH_PE_uleb128: return cursor.uleb();
    case DW_EH_PE_udata2: return read_extended<std::uint16_t>(cursor);
    case DW_EH_PE_udata4: return read_extended<std::uint32_t>(cursor);
    case DW_EH_PE_udata8: return cursor.read<std::uint64_t>();
    case DW_EH_PE_sleb128: {
      const auto value = cursor.sleb();
      if (!value) return Failure(value.error());
      return static_cast<std::uint64_t>(*value);
    }
    case DW_EH_PE_sdata2: return read_extended<std::int16_t>(cursor);
    case DW_EH_PE_sdata4: return read_extended<std::int32_t>(cursor);
    case DW_EH_PE_sdata8: return cursor.read<std::uint64_t>();
    default: return fail(ErrorCode::kMalformed, "unknown pointer encoding", cursor.origin(), format);
  }
}

}  // namespace

[[gnu::hot]] Expected<EncodedPointer> read_encoded_pointer(const CfiSection& section, std::uint64_t& position,
                                                           std::uint8_t encoding, std::uint8_t address_size,
                                                           std::uint64_t function) {
  // What nearly all pointers are, without the switches below: their tables are on a page of their own, which the first
  // walk of a process would have to wait for.
  const std::uint8_t direct = encoding & static_cast<std::uint8_t>(~DW_EH_PE_indirect);
  const bool pcrel = direct == (DW_EH_PE_pcrel | DW_EH_PE_sdata4);
  if ((pcrel || direct == DW_EH_PE_udata4) && section.bytes.size() >= 4 && position <= section.bytes.size() - 4) {
    const auto stored = load<std::uint32_t>(section.bytes.u8() + position);
    const auto distance = static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(stored)});
    const std::uint64_t value = pcrel ? section.address + position + distance : stored;
    position += 4;
    return EncodedPointer{value, direct != encoding};
  }
  ByteCursor cursor(section.bytes, position);
  const std::uint8_t relative = encoding & DW_EH_PE_relative_mask;
  if (relative == DW_EH_PE_aligned) {
    // An absolute pointer at the next aligned address.
    const std::uint64_t mask = address_size - std::uint64_t{1};
    const std::uint64_t skip = (~(section.address + position) + 1) & mask;
    if (const auto skipped = cursor.bytes(skip); !skipped) return Failure(skipped.error());
  }
  const std::uint64_t at = cursor.position();
  const auto raw = read_format(cursor, encoding & DW_EH_PE_format_mask, address_size);
  if (!raw) return Failure(raw.error());
  std::uint64_t base = 0;
  switch (relative) {
    case DW_EH_PE_absptr:
    case DW_EH_PE_aligned: break;
    case DW_EH_PE_pcrel: base = section.address + at; break;
    case DW_EH_PE_textrel: base = section.text_address; break;
    case DW_EH_PE_datarel: base = section.data_address; break;
    case DW_EH_PE_funcrel: base = function; break;
    default: return fail(ErrorCode::kMalformed, "unknown pointer encoding", cursor.origin(), encoding);
  }
  position = cursor.position();
  return EncodedPointer{*raw + base, (encoding & DW_EH_PE_indirect) != 0};
}

[[gnu::hot]] Expected<EntryHeader> EntryParser::header_at(std::uint64_t offset) const {
  const std::uint64_t size = section_.bytes.size();
  const std::uint8_t* base = section_.bytes.u8();
  if (offset > size || size - offset < 4)
    return error(ErrorCode::kTruncated, "entry has no room for its length", offset);
  std::uint64_t length = load<std::uint32_t>(base + offset);
  std::uint64_t id_at = offset + 4;
  bool is_64bit = false;
  if (length >= 0xfffffff0) {
    if (length != 0xffffffff) return error(ErrorCode::kMalformed, "reserved entry length", offset, length);
    if (size - offset < 12) return error(ErrorCode::kTruncated, "entry has no room for its length", offset);
    length = load<std::uint64_t>(base + offset + 4);
    id_at = offset + 12;
    is_64bit = true;
  }
  if (length > size - id_at)
    return error(ErrorCode::kTruncated, "entry reaches past the end of its section", offset, length);
  // LSB 5.0 section 10.6.1: .eh_frame's id is 4 bytes even after an extended length (so do gimli and LLVM; readelf
  // takes 8 there). DWARF 5 section 7.4: .debug_frame's is as wide as its offsets.
  const std::uint64_t id_size = is_64bit && section_.is_debug_frame ? 8 : 4;
  if (length < id_size) return error(ErrorCode::kMalformed, "entry is too short", offset, length);
  const std::uint64_t id = id_size == 8 ? load<std::uint64_t>(base + id_at) : load<std::uint32_t>(base + id_at);
  const std::uint64_t cie_id = !section_.is_debug_frame ? 0 : id_size == 8 ? ~std::uint64_t{0} : 0xffffffffu;
  return EntryHeader{offset, id_at, id_at + id_size, id_at + length, id, is_64bit, id == cie_id};
}

// Reads the data behind the letters of a 'z' augmentation, [at, end). 'z' gives the length of the data. So the data of
// an unknown letter and of all letters behind that can be skipped, but not read.
[[gnu::hot]] Expected<void> EntryParser::read_augmentation(Cie& cie, std::uint64_t at, std::uint64_t end) const {
  CfiSection data = section_;
  data.bytes = ByteView(section_.bytes.data(), end, section_.bytes.origin());
  for (const char letter : cie.augmentation.substr(1)) {
    if (letter == 'S') {
      cie.signal_frame = true;
    } else if (letter == 'B') {
      cie.aarch64_b_key = true;
    } else if (letter == 'G') {
      cie.aarch64_mte = true;
    } else if (letter == 'L' || letter == 'R' || letter == 'P') {
      const auto encoding = data.bytes.at<std::uint8_t>(at);
      if (!encoding) return Failure(encoding.error());
      ++at;
      if (letter == 'L') cie.lsda_encoding = *encoding;
      if (letter == 'R') cie.fde_encoding = *encoding;
      if (letter == 'P' && *encoding != DW_EH_PE_omit) {
        const auto personality = read_encoded_pointer(data, at, *encoding, cie.address_size, 0);
        if (!personality) return Failure(personality.error());
        cie.personality = *personality;
      }
    } else {
      break;
    }
  }
  return {};
}

[[gnu::hot]] Expected<Cie> EntryParser::parse_cie(const EntryHeader& header) const {
  Cie cie;
  cie.offset = header.offset;
  cie.is_64bit = header.is_64bit;
  const ByteView entry(section_.bytes.data(), header.end, section_.bytes.origin());  // reads stop at the entry's end
  ByteCursor cursor(entry, header.body);
  const auto version = cursor.read<std::uint8_t>();
  if (!version) return Failure(version.error());
  cie.version = *version;
  if (cie.version != 1 && cie.version != 3 && cie.version != 4)
    return error(ErrorCode::kUnsupported, "unknown CIE version", header.body, cie.version);
  if (!read_terminated(entry, cursor, cie.augmentation))
    return error(ErrorCode::kTruncated, "string has no terminator", cursor.position());

  if (cie.version >= 4) {
    const auto address_size = cursor.read<std::uint8_t>();
    const auto selector_size = cursor.read<std::uint8_t>();
    if (!selector_size) return Failure(selector_size.error());
    cie.address_size = *address_size;
    cie.segment_selector_size = *selector_size;
    if ((cie.address_size != 4 && cie.address_size != 8) || cie.segment_selector_size > 8)
      return error(ErrorCode::kUnsupported, "CIE with an address size that is neither 4 nor 8", header.body,
                   cie.address_size);
  }
  const bool is_old_eh = cie.augmentation == "eh";  // gcc before 3.0: a pointer to exception data follows
  if (is_old_eh) {
    if (const auto data = cursor.bytes(cie.address_size); !data) return Failure(data.error());
  }
  const auto code_alignment = cursor.uleb();
  if (!code_alignment) return Failure(code_alignment.error());
  cie.code_alignment = *code_alignment;
  const auto data_alignment = cursor.sleb();
  if (!data_alignment) return Failure(data_alignment.error());
  cie.data_alignment = *data_alignment;
  const auto return_column = cie.version == 1 ? read_extended<std::uint8_t>(cursor) : cursor.uleb();
  if (!return_column) return Failure(return_column.error());
  cie.return_address_register = *return_column;

  std::uint64_t instructions_at = cursor.position();
  if (cie.augmentation.starts_with('z')) {
    cie.has_augmentation_data = true;
    const auto length = cursor.uleb();
    if (!length) return Failure(length.error());
    instructions_at = cursor.position() + *length;
    if (*length > cursor.remaining())
      return error(ErrorCode::kOutOfRange, "CIE augmentation data reach past the entry", cursor.position(), *length);
    auto read = read_augmentation(cie, cursor.position(), instructions_at);
    if (!read) return Failure(read.error());
  } else if (!cie.augmentation.empty() && !is_old_eh) {
    return error(ErrorCode::kUnsupported, "unknown CIE augmentation without a length", header.body);
  }
  cie.instructions = *entry.sub(instructions_at, header.end - instructions_at);
  if (cie.instructions.size() > kMaxInitialInstructions)
    return error(ErrorCode::kLimit, "CIE with too many initial instructions", header.offset, cie.instructions.size());
  return cie;
}

// Where the FDE's function begins and how long it is, in any encoding; moves `at` past them.
bool EntryParser::read_range(const EntryHeader& header, const Cie& cie, std::uint64_t& at, std::uint64_t& begin,
                             std::uint64_t& range, Error& problem) const {
  CfiSection entry = section_;
  entry.bytes = ByteView(section_.bytes.data(), header.end, section_.bytes.origin());
  const auto start = read_encoded_pointer(entry, at, cie.fde_encoding, cie.address_size, 0);
  // The range has the same format and is never relative.
  const auto length =
      start ? read_encoded_pointer(entry, at, cie.fde_encoding & DW_EH_PE_format_mask, cie.address_size, 0) : start;
  if (!length) {
    problem = length.error();
    return false;
  }
  if (start->indirect) {
    problem = error(ErrorCode::kUnsupported, "FDE with an indirect start", header.offset).error();
    return false;
  }
  begin = start->value;
  range = length->value;
  return true;
}

// The FDE's augmentation data, for a CIE with 'z'; moves `at` past them.
[[gnu::hot]] bool EntryParser::read_lsda(const EntryHeader& header, const Cie& cie, std::uint64_t& at, Fde& fde,
                                         Error& problem, ErrorSink report) const {
  const std::uint8_t* base = section_.bytes.u8();
  std::uint64_t length = 0;
  if (at < header.end && base[at] < 0x80) {
    length = base[at++];
  } else {
    ByteCursor cursor(ByteView(section_.bytes.data(), header.end, section_.bytes.origin()), at);
    const auto read = cursor.uleb();
    if (!read) {
      problem = read.error();
      return false;
    }
    length = *read;
    at = cursor.position();
  }
  if (length > header.end - at) {
    problem = error(ErrorCode::kOutOfRange, "FDE augmentation data reach past the entry", at, length).error();
    return false;
  }
  if (cie.lsda_encoding != DW_EH_PE_omit && length != 0) {
    CfiSection data = section_;
    data.bytes = ByteView(section_.bytes.data(), at + length, section_.bytes.origin());
    std::uint64_t end = at;
    const auto lsda = read_encoded_pointer(data, end, cie.lsda_encoding, cie.address_size, fde.begin);
    if (lsda) {
      // A stored zero means none, whatever it is relative to (libgcc, read_encoded_value_with_base).
      const bool none = std::all_of(base + at, base + end, [](std::uint8_t byte) { return byte == 0; });
      if (!none) fde.lsda = *lsda;
    } else {
      report(lsda.error());  // the rows do not depend on it
    }
  }
  at += length;
  return true;
}

[[gnu::hot]] bool EntryParser::cie_offset(const EntryHeader& header, std::uint64_t& offset, Error& problem) const {
  if (!section_.is_debug_frame && header.id > header.id_at) {
    problem = error(ErrorCode::kOutOfRange, "FDE points to a CIE before the section", header.offset, header.id).error();
    return false;
  }
  offset = section_.is_debug_frame ? header.id : header.id_at - header.id;
  return true;
}

[[gnu::hot]] bool EntryParser::parse_fde(const EntryHeader& header, const Cie& cie, Fde& fde, Error& problem,
                                         ErrorSink report) const {
  fde.offset = header.offset;
  fde.cie = &cie;
  fde.lsda.reset();
  std::uint64_t at = header.body + cie.segment_selector_size;
  std::uint64_t range = 0;
  const std::uint8_t* base = section_.bytes.u8();
  if (cie.fde_encoding == (DW_EH_PE_pcrel | DW_EH_PE_sdata4) && header.end >= at && header.end - at >= 8) [[likely]] {
    // What nearly every FDE there is has.
    fde.begin = section_.address + at + static_cast<std::uint64_t>(std::int64_t{load<std::int32_t>(base + at)});
    range = static_cast<std::uint64_t>(std::int64_t{load<std::int32_t>(base + at + 4)});
    at += 8;
  } else if (!read_range(header, cie, at, fde.begin, range, problem)) {
    return false;
  }
  fde.end = fde.begin + range;
  if (fde.end < fde.begin) [[unlikely]] {
    problem = error(ErrorCode::kMalformed, "FDE with a negative or wrapping range", header.offset, range).error();
    return false;
  }
  if (cie.has_augmentation_data) {
    if (at < header.end && base[at] == 0)
      ++at;  // no data
    else if (!read_lsda(header, cie, at, fde, problem, report))
      return false;
  }
  fde.instructions = ByteView(section_.bytes.data() + at, header.end - at, section_.bytes.origin() + at);
  return true;
}

}  // namespace windlass::dwarf
