// The index of `.eh_frame` that linkers make: the FDE of an address without reading the section.
#pragma once

#include "formats/dwarf/cfi.h"

namespace windlass::dwarf {

// An FDE with its CIE, in one piece. Not copyable: the one points to the other.
struct LocatedFde {
  Cie cie;
  Fde fde;
  const std::byte* cie_of = nullptr;  // the section that `cie` has been read from
  LocatedFde() = default;
  LocatedFde(const LocatedFde&) = delete;
  LocatedFde& operator=(const LocatedFde&) = delete;
};

// `.eh_frame_hdr`: where `.eh_frame` is, and a table sorted by function. LSB 5.0 section 10.6.2.
struct EhFrameHdr {
  std::uint64_t eh_frame_address = 0;
  std::uint64_t fde_count = 0;
  ByteView table;  // {function, FDE} pairs of sdata4 relative to the header; empty if absent or encoded otherwise
  std::uint64_t address = 0;  // of the header

  // `address` is where bytes[0] is loaded.
  [[nodiscard]] static Expected<EhFrameHdr> parse(ByteView bytes, std::uint64_t address);
  // The address of the FDE whose function starts at or before `pc`; kNotFound without one. Logarithmic. The caller
  // checks that the FDE covers pc: the table has no ends and a hostile one may be unsorted.
  [[nodiscard]] Expected<std::uint64_t> fde_address(std::uint64_t pc) const;

  // Finds the FDE that covers `pc`, with its CIE, in the section to which the index belongs. The CIE that `found` has
  // from an earlier call is not read again if it is the same. kNotFound: no FDE does.
  // Any other error says how the record is damaged. Logarithmic, and bounded work on the records. Allocates nothing.
  // Thread-safe, signal-safe.
  [[nodiscard]] Expected<void> find(const CfiSection& eh_frame, std::uint64_t pc, LocatedFde& found) const;

 private:
  [[nodiscard]] std::uint64_t value(std::uint64_t index, std::uint64_t field) const;
  [[nodiscard]] std::uint64_t count_until(std::uint64_t pc) const;
};

}  // namespace windlass::dwarf
