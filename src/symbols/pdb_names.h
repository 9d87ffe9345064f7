// Names from the PDB file of a PE image.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "symbols/pdb_find.h"
#include "symbols/symbol_result.h"

namespace windlass::symbols {

class PdbNames {
 public:
  explicit PdbNames(std::unique_ptr<OpenPdb> file) : file_(std::move(file)) {}

  // Adds the lines of names' address number `index`: a procedure, with `lines` also the calls inlined there. False: no
  // procedure is known at the address.
  bool name(std::size_t index, std::uint32_t rva, bool lines, ModuleNames& names);
  // As PdbFile::public_before().
  [[nodiscard]] std::optional<pdb::PdbFile::Symbol> public_before(std::uint32_t rva, bool any) {
    return file_->pdb.public_before(rva, any);
  }
  [[nodiscard]] bool is_spent() const { return file_->pdb.is_spent(); }

 private:
  std::unique_ptr<OpenPdb> file_;
};

}  // namespace windlass::symbols
