// The public symbols of a PDB file by address: the names that the linker saw, without sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "formats/pdb/dbi.h"
#include "formats/pdb/msf.h"
#include "windlass/function_ref.h"

namespace windlass::pdb {

struct PublicSymbol {
  SectionOffset place;
  std::uint32_t flags = 0;  // kPublicCode, kPublicFunction
  std::string name;         // decorated
};

class Publics {
 public:
  // A view of the file, which must outlive it. Streams that are absent or damaged have no symbols.
  Publics(const MsfFile& file, const DbiHeader& header);

  // The last one of code at or before a place, in the same section; with `any`, of whatever. Reads O(log n) records.
  [[nodiscard]] std::optional<PublicSymbol> nearest(SectionOffset place, bool any) const;
  // The place of each.
  void each_place(FunctionRef<void(SectionOffset)> add) const;

 private:
  [[nodiscard]] std::optional<PublicSymbol> symbol(std::uint32_t index, bool with_name) const;

  Stream map_;  // offsets of records, in the order of the addresses
  Stream records_;
  std::uint64_t map_offset_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace windlass::pdb
