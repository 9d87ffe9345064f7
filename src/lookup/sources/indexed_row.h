// A row through .eh_frame_hdr: in a file's bytes, and where it is mapped. No lock, no memory; signal-safe.
#pragma once

#include "formats/dwarf/eh_frame_hdr.h"
#include "formats/dwarf/lower.h"
#include "windlass/frame_row.h"

namespace windlass::sources {

inline Expected<void> indexed_row(const dwarf::EhFrameHdr& header, const dwarf::CfiSection& section,
                                  std::uint64_t address, FrameRow& to) {
  dwarf::LocatedFde found;
  if (auto located = header.find(section, address, found); !located) return Failure(located.error());
  return dwarf::row_at(section, found.fde, address, to);
}

}  // namespace windlass::sources
