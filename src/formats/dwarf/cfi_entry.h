// One entry of call frame information parsed into storage of the caller: no cache, no allocation, no state. What
// CfiReader and EhFrameHdr stand on.
#pragma once

#include <cstring>

#include "formats/dwarf/cfi.h"

namespace windlass::dwarf {

struct EntryHeader {     // of any entry, all offsets in the section
  std::uint64_t offset;  // the length field
  std::uint64_t id_at;   // the CIE id or CIE pointer
  std::uint64_t body;    // what follows the id
  std::uint64_t end;     // one past the last byte
  std::uint64_t id;
  bool is_64bit;
  bool is_cie;
};

// Stateless and so thread-safe and signal-safe; the section is kept by reference.
class EntryParser {
 public:
  explicit EntryParser(const CfiSection& section) : section_(section) {}

  [[nodiscard]] Expected<EntryHeader> header_at(std::uint64_t offset) const;
  // Bounded: a CIE's parts are.
  [[nodiscard]] Expected<Cie> parse_cie(const EntryHeader& header) const;
  // Where the CIE of an FDE is. False, with the problem, if that is before the section.
  [[nodiscard]] bool cie_offset(const EntryHeader& header, std::uint64_t& offset, Error& problem) const;
  // An FDE of `cie`, whose address it keeps. False and `problem` instead of an Expected of the whole FDE: the hot path.
  // A bad LSDA goes to `report`; the rows do not depend on it.
  [[nodiscard]] bool parse_fde(const EntryHeader& header, const Cie& cie, Fde& fde, Error& problem,
                               ErrorSink report) const;

  // Reads an FDE in one go if it has the form of nearly all FDEs of an .eh_frame: 32-bit length, `cie` as its CIE,
  // addresses and LSDA as pcrel sdata4, an augmentation length of one byte. False for any other form, with nothing
  // done.
  [[nodiscard]] inline bool parse_usual_fde(std::uint64_t offset, const Cie& cie, Fde& fde) const;

  [[nodiscard]] Failure error(ErrorCode code, const char* what, std::uint64_t offset, std::uint64_t detail = 0) const {
    return fail(code, what, section_.bytes.origin() + offset, detail);
  }

 private:
  [[nodiscard]] Expected<void> read_augmentation(Cie& cie, std::uint64_t at, std::uint64_t end) const;
  [[nodiscard]] bool read_range(const EntryHeader& header, const Cie& cie, std::uint64_t& at, std::uint64_t& begin,
                                std::uint64_t& range, Error& problem) const;
  [[nodiscard]] bool read_lsda(const EntryHeader& header, const Cie& cie, std::uint64_t& at, Fde& fde, Error& problem,
                               ErrorSink report) const;

  const CfiSection& section_;
};

// A little-endian value of unaligned memory that was checked to be there.
template <typename T>
T load(const std::uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

bool EntryParser::parse_usual_fde(std::uint64_t offset, const Cie& cie, Fde& fde) const {
  constexpr std::uint8_t kUsual = DW_EH_PE_pcrel | DW_EH_PE_sdata4;
  constexpr std::uint64_t kHeader = 17;  // length, CIE pointer, begin, range, augmentation length
  const std::uint64_t size = section_.bytes.size();
  if (section_.is_debug_frame || offset > size || size - offset < kHeader) return false;
  const std::uint8_t* const entry = section_.bytes.u8() + offset;
  const std::uint64_t length = load<std::uint32_t>(entry);
  if (length >= 0xfffffff0 || length > size - offset - 4 || length < kHeader - 4) return false;
  if (offset + 4 - load<std::uint32_t>(entry + 4) != cie.offset || load<std::uint32_t>(entry + 4) == 0) return false;
  if (cie.fde_encoding != kUsual || !cie.has_augmentation_data || cie.segment_selector_size != 0) return false;
  const std::uint64_t augmentation = entry[16];
  if (augmentation >= 0x80 || augmentation > length - (kHeader - 4)) return false;

  const std::uint64_t address = section_.address + offset;
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
  fde.offset = offset;
  fde.cie = &cie;
  fde.begin = begin;
  fde.end = begin + static_cast<std::uint64_t>(range);
  const std::uint64_t program = offset + kHeader + augmentation;
  fde.instructions =
      ByteView(section_.bytes.data() + program, offset + 4 + length - program, section_.bytes.origin() + program);
  return true;
}

}  // namespace windlass::dwarf
