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

}  // namespace windlass::dwarf
