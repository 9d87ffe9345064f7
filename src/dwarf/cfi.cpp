#include "dwarf/cfi.h"

#include <algorithm>
#include <cstring>

namespace windlass::dwarf {
namespace {

// Bounds against entries that overlap: FDEs may each name another "CIE" within the same bytes, so what reading one CIE
// costs must be small. Real ones have 5 characters and under 40 bytes of instructions.
constexpr std::uint64_t kMaxAugmentation = 64;
constexpr std::uint64_t kMaxInitialInstructions = 1024;
// And how many there are: the largest programs have one a compilation unit, tens of thousands.
constexpr std::size_t kMaxCies = std::size_t{1} << 20;

template <typename T>
T load(const std::uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <typename T>
Expected<std::uint64_t> read_extended(ByteCursor& cursor) {
  const auto value = cursor.read<T>();
  if (!value) return std::unexpected(value.error());
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(*value));  // sign- or zero-extended as T is
}

Expected<std::uint64_t> read_format(ByteCursor& cursor, std::uint8_t format, std::uint8_t address_size) {
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
      if (!value) return std::unexpected(value.error());
      return static_cast<std::uint64_t>(*value);
    }
    case DW_EH_PE_sdata2: return read_extended<std::int16_t>(cursor);
    case DW_EH_PE_sdata4: return read_extended<std::int32_t>(cursor);
    case DW_EH_PE_sdata8: return cursor.read<std::uint64_t>();
    default: return fail(ErrorCode::kMalformed, "unknown pointer encoding", cursor.origin(), format);
  }
}

}  // namespace

Expected<EncodedPointer> read_encoded_pointer(const CfiSection& section, std::uint64_t& position, std::uint8_t encoding,
                                              std::uint8_t address_size, std::uint64_t function) {
  ByteCursor cursor(section.bytes, position);
  const std::uint8_t relative = encoding & DW_EH_PE_relative_mask;
  if (relative == DW_EH_PE_aligned) {
    // An absolute pointer at the next aligned address.
    const std::uint64_t mask = address_size - std::uint64_t{1};
    const std::uint64_t skip = (~(section.address + position) + 1) & mask;
    if (const auto skipped = cursor.bytes(skip); !skipped) return std::unexpected(skipped.error());
  }
  const std::uint64_t at = cursor.position();
  const auto raw = read_format(cursor, encoding & DW_EH_PE_format_mask, address_size);
  if (!raw) return std::unexpected(raw.error());
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

Expected<CfiReader::Header> CfiReader::header_at(std::uint64_t offset) const {
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
  return Header{offset, id_at, id_at + id_size, id_at + length, id, is_64bit, id == cie_id};
}

CfiReader::Step CfiReader::next_header(Header& header) {
  const std::uint64_t size = section_.bytes.size();
  const std::uint8_t* base = section_.bytes.u8();
  while (size - position_ >= 4 && load<std::uint32_t>(base + position_) == 0) {
    // A terminator. Linkers put crtend.o's last, but `ld -r` and concatenation leave some in the middle; where the
    // section's size is known everything after it counts (readelf, gimli), otherwise it is the only end there is.
    position_ += 4;
    if (section_.stop_at_terminator) {
      position_ = size;
      return Step::kEnd;
    }
  }
  if (position_ >= size) return Step::kEnd;
  if (size - position_ >= 8 && !section_.is_debug_frame) [[likely]] {
    // What header_at would say of nearly every entry.
    const std::uint64_t length = load<std::uint32_t>(base + position_);
    if (length >= 4 && length < 0xfffffff0 && length <= size - position_ - 4) [[likely]] {
      const std::uint64_t id = load<std::uint32_t>(base + position_ + 4);
      header = Header{position_, position_ + 4, position_ + 8, position_ + 4 + length, id, false, id == 0};
      position_ = header.end;
      return Step::kEntry;
    }
  }
  auto parsed = header_at(position_);
  if (parsed) {
    header = *parsed;
    position_ = header.end;
    return Step::kEntry;
  }
  // Too short an entry still says where the next one is; the other errors leave no way to find it.
  if (parsed.error().code == ErrorCode::kMalformed && parsed.error().detail < 8) {
    const bool is_64bit = load<std::uint32_t>(base + position_) == 0xffffffff;
    position_ += parsed.error().detail + (is_64bit ? 12 : 4);
  } else {
    const bool padding =
        size - position_ < 4 && std::all_of(base + position_, base + size, [](auto b) { return b == 0; });
    position_ = size;
    if (padding) return Step::kEnd;
  }
  report_(parsed.error());
  return Step::kError;
}

// The data behind the letters of a 'z' augmentation, [at, end). 'z' says how long the data are, so that what follows an
// unknown letter can be skipped, not read.
Expected<void> CfiReader::read_augmentation(Cie& cie, std::uint64_t at, std::uint64_t end) const {
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
      if (!encoding) return std::unexpected(encoding.error());
      ++at;
      if (letter == 'L') cie.lsda_encoding = *encoding;
      if (letter == 'R') cie.fde_encoding = *encoding;
      if (letter == 'P' && *encoding != DW_EH_PE_omit) {
        const auto personality = read_encoded_pointer(data, at, *encoding, cie.address_size, 0);
        if (!personality) return std::unexpected(personality.error());
        cie.personality = *personality;
      }
    } else {
      break;
    }
  }
  return {};
}

Expected<Cie> CfiReader::parse_cie(const Header& header) const {
  Cie cie;
  cie.offset = header.offset;
  cie.is_64bit = header.is_64bit;
  const ByteView entry(section_.bytes.data(), header.end, section_.bytes.origin());  // reads stop at the entry's end
  ByteCursor cursor(entry, header.body);
  const auto version = cursor.read<std::uint8_t>();
  if (!version) return std::unexpected(version.error());
  cie.version = *version;
  if (cie.version != 1 && cie.version != 3 && cie.version != 4)
    return error(ErrorCode::kUnsupported, "unknown CIE version", header.body, cie.version);
  const std::uint64_t string_end = std::min(header.end, cursor.position() + kMaxAugmentation);
  const auto augmentation = ByteView(entry.data(), string_end, entry.origin()).string_at(cursor.position());
  if (!augmentation) return std::unexpected(augmentation.error());
  cie.augmentation = *augmentation;
  (void)cursor.bytes(augmentation->size() + 1);

  if (cie.version >= 4) {
    const auto address_size = cursor.read<std::uint8_t>();
    const auto selector_size = cursor.read<std::uint8_t>();
    if (!selector_size) return std::unexpected(selector_size.error());
    cie.address_size = *address_size;
    cie.segment_selector_size = *selector_size;
    if ((cie.address_size != 4 && cie.address_size != 8) || cie.segment_selector_size > 8)
      return error(ErrorCode::kUnsupported, "CIE with an address size that is neither 4 nor 8", header.body,
                   cie.address_size);
  }
  const bool is_old_eh = cie.augmentation == "eh";  // gcc before 3.0: a pointer to exception data follows
  if (is_old_eh) {
    if (const auto data = cursor.bytes(cie.address_size); !data) return std::unexpected(data.error());
  }
  const auto code_alignment = cursor.uleb();
  if (!code_alignment) return std::unexpected(code_alignment.error());
  cie.code_alignment = *code_alignment;
  const auto data_alignment = cursor.sleb();
  if (!data_alignment) return std::unexpected(data_alignment.error());
  cie.data_alignment = *data_alignment;
  const auto return_column = cie.version == 1 ? read_extended<std::uint8_t>(cursor) : cursor.uleb();
  if (!return_column) return std::unexpected(return_column.error());
  cie.return_address_register = *return_column;

  std::uint64_t instructions_at = cursor.position();
  if (cie.augmentation.starts_with('z')) {
    cie.has_augmentation_data = true;
    const auto length = cursor.uleb();
    if (!length) return std::unexpected(length.error());
    instructions_at = cursor.position() + *length;
    if (*length > cursor.remaining())
      return error(ErrorCode::kOutOfRange, "CIE augmentation data reach past the entry", cursor.position(), *length);
    auto read = read_augmentation(cie, cursor.position(), instructions_at);
    if (!read) return std::unexpected(read.error());
  } else if (!cie.augmentation.empty() && !is_old_eh) {
    return error(ErrorCode::kUnsupported, "unknown CIE augmentation without a length", header.body);
  }
  cie.instructions = *entry.sub(instructions_at, header.end - instructions_at);
  if (cie.instructions.size() > kMaxInitialInstructions)
    return error(ErrorCode::kLimit, "CIE with too many initial instructions", header.offset, cie.instructions.size());
  return cie;
}

Expected<const Cie*> CfiReader::cached_cie(std::uint64_t offset) {
  if (const auto found = by_offset_.find(offset); found != by_offset_.end()) {
    if (found->second == nullptr) return error(ErrorCode::kMalformed, "the CIE is malformed", offset);
    last_cie_ = found->second;
    return last_cie_;
  }
  if (by_offset_.size() >= kMaxCies) return error(ErrorCode::kLimit, "too many CIEs", offset, kMaxCies);
  const auto header = header_at(offset);
  auto parsed = !header          ? Expected<Cie>(std::unexpected(header.error()))
                : header->is_cie ? parse_cie(*header)
                                 : Expected<Cie>(error(ErrorCode::kMalformed, "not a CIE", offset));
  if (!parsed) {
    by_offset_.emplace(offset, nullptr);
    return std::unexpected(parsed.error());
  }
  parsed->index = static_cast<std::uint32_t>(cies_.size());
  last_cie_ = &cies_.emplace_back(*parsed);
  by_offset_.emplace(offset, last_cie_);
  return last_cie_;
}

Expected<const Cie*> CfiReader::cie_at(std::uint64_t offset) {
  if (last_cie_ != nullptr && last_cie_->offset == offset) return last_cie_;
  return cached_cie(offset);
}

// Where the FDE's function begins and how long it is, in any encoding; moves `at` past them.
bool CfiReader::read_range(const Header& header, const Cie& cie, std::uint64_t& at, std::uint64_t& begin,
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
bool CfiReader::read_lsda(const Header& header, const Cie& cie, std::uint64_t& at, Fde& fde, Error& problem) const {
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
      report_(lsda.error());  // the rows do not depend on it
    }
  }
  at += length;
  return true;
}

bool CfiReader::parse_fde(const Header& header, Fde& fde, Error& problem) {
  const std::uint64_t cie_offset = section_.is_debug_frame ? header.id : header.id_at - header.id;
  if (last_cie_ == nullptr || last_cie_->offset != cie_offset) {
    if (!section_.is_debug_frame && header.id > header.id_at) {
      problem =
          error(ErrorCode::kOutOfRange, "FDE points to a CIE before the section", header.offset, header.id).error();
      return false;
    }
    if (!cached_cie(cie_offset)) {
      problem = error(ErrorCode::kMalformed, "FDE without a usable CIE", header.offset, cie_offset).error();
      return false;
    }
  }
  const Cie& cie = *last_cie_;
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
    else if (!read_lsda(header, cie, at, fde, problem))
      return false;
  }
  fde.instructions = ByteView(section_.bytes.data() + at, header.end - at, section_.bytes.origin() + at);
  return true;
}

// The next entry that is sound; `cie` is null where it is an FDE.
bool CfiReader::next(const Cie*& cie, Fde& fde) {
  for (;;) {
    Header header;
    const Step step = next_header(header);
    if (step == Step::kEnd) return false;
    if (step == Step::kError) continue;
    Error problem;
    if (!header.is_cie) {
      cie = nullptr;
      if (parse_fde(header, fde, problem)) return true;
    } else if (const auto found = cached_cie(header.offset)) {
      cie = *found;
      return true;
    } else {
      problem = found.error();
    }
    report_(problem);
  }
}

// What nearly every FDE of an .eh_frame is, in one go: 32-bit length, the CIE of the one before, both addresses and the
// LSDA pcrel sdata4, an augmentation length of one byte. False, with nothing done, for anything else.
bool CfiReader::next_usual_fde(Fde& fde) {
  constexpr std::uint8_t kUsual = DW_EH_PE_pcrel | DW_EH_PE_sdata4;
  constexpr std::uint64_t kHeader = 17;  // length, CIE pointer, begin, range, augmentation length
  const std::uint64_t size = section_.bytes.size();
  if (last_cie_ == nullptr || section_.is_debug_frame || size - position_ < kHeader) return false;
  const Cie& cie = *last_cie_;
  const std::uint8_t* const entry = section_.bytes.u8() + position_;
  const std::uint64_t length = load<std::uint32_t>(entry);
  if (length >= 0xfffffff0 || length > size - position_ - 4 || length < kHeader - 4) return false;
  if (position_ + 4 - load<std::uint32_t>(entry + 4) != cie.offset || load<std::uint32_t>(entry + 4) == 0) return false;
  if (cie.fde_encoding != kUsual || !cie.has_augmentation_data || cie.segment_selector_size != 0) return false;
  const std::uint64_t augmentation = entry[16];
  if (augmentation >= 0x80 || augmentation > length - (kHeader - 4)) return false;

  const std::uint64_t address = section_.address + position_;
  const auto pcrel = [&](std::uint64_t at) {
    return address + at + static_cast<std::uint64_t>(std::int64_t{load<std::int32_t>(entry + at)});
  };
  const std::int64_t range = load<std::int32_t>(entry + 12);
  const std::uint64_t begin = pcrel(8);
  if (range < 0 || begin + static_cast<std::uint64_t>(range) < begin) return false;
  fde.lsda.reset();
  if (augmentation != 0) {
    if (cie.lsda_encoding == kUsual && augmentation >= 4) {
      if (load<std::int32_t>(entry + kHeader) != 0) fde.lsda = EncodedPointer{pcrel(kHeader), false};
    } else if (cie.lsda_encoding != DW_EH_PE_omit) {
      return false;
    }
  }
  fde.offset = position_;
  fde.cie = &cie;
  fde.begin = begin;
  fde.end = begin + static_cast<std::uint64_t>(range);
  const std::uint64_t program = position_ + kHeader + augmentation;
  position_ += 4 + length;
  fde.instructions = ByteView(section_.bytes.data() + program, position_ - program, section_.bytes.origin() + program);
  return true;
}

bool CfiReader::next_fde(Fde& fde) {
  if (next_usual_fde(fde)) [[likely]]
    return true;
  const Cie* cie = nullptr;
  while (next(cie, fde)) {
    if (cie == nullptr) return true;
  }
  return false;
}

bool CfiReader::next(Entry& entry) { return next(entry.cie, entry.fde); }

Expected<Fde> CfiReader::fde_at(std::uint64_t offset) {
  const auto header = header_at(offset);
  if (!header) return std::unexpected(header.error());
  if (header->is_cie) return error(ErrorCode::kMalformed, "a CIE where an FDE is expected", offset);
  Fde fde;
  Error problem;
  if (!parse_fde(*header, fde, problem)) return std::unexpected(problem);
  return fde;
}

Expected<EhFrameHdr> EhFrameHdr::parse(ByteView bytes, std::uint64_t address) {
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
  if (!eh_frame) return std::unexpected(eh_frame.error());
  if (data[1] == DW_EH_PE_omit || eh_frame->indirect)
    return fail(ErrorCode::kUnsupported, ".eh_frame_hdr does not say where .eh_frame is", bytes.origin() + 1, data[1]);
  header.eh_frame_address = eh_frame->value;
  if (data[2] == DW_EH_PE_omit || data[3] != (DW_EH_PE_datarel | DW_EH_PE_sdata4)) return header;
  const auto count = read_encoded_pointer(section, at, data[2], 8, 0);
  if (!count) return header;  // .eh_frame itself can still be read
  header.fde_count = std::min<std::uint64_t>(count->value, (bytes.size() - at) / 8);
  header.table = *bytes.sub(at, header.fde_count * 8);
  return header;
}

Expected<std::uint64_t> EhFrameHdr::fde_address(std::uint64_t pc) const {
  const std::uint8_t* data = table.u8();
  const auto value = [&](std::uint64_t index, std::uint64_t field) {
    return address + static_cast<std::uint64_t>(std::int64_t{load<std::int32_t>(data + index * 8 + field * 4)});
  };
  std::uint64_t low = 0;
  std::uint64_t high = fde_count;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (value(middle, 0) <= pc)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == 0) return fail(ErrorCode::kNotFound, "no function at or before the address", pc);
  return value(low - 1, 1);
}

}  // namespace windlass::dwarf
