// Ids of functions that a module takes from another module: MSVC writes these when it generates code at the link
// (/LTCG).
#pragma once

#include <cstdint>
#include <optional>

#include "windlass/bytes.h"

namespace windlass::pdb {

class CrossScope {
 public:
  // A view of the module's sub-sections, which must outlive it.
  explicit CrossScope(ByteView subsections);

  [[nodiscard]] static bool is_imported(std::uint32_t id) { return (id & 0x8000'0000) != 0; }
  struct Import {
    std::uint32_t module_name;  // an offset in the PDB's table of strings
    std::uint32_t id;           // as that module numbers it
  };
  [[nodiscard]] std::optional<Import> import(std::uint32_t id) const;
  // The id in the PDB of a function that this module gives to others.
  [[nodiscard]] std::optional<std::uint32_t> exported(std::uint32_t id) const;

 private:
  ByteView imports_, exports_;
};

}  // namespace windlass::pdb
