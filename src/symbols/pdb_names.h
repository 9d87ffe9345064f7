// Names from the PDB file of a PE image.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "symbols/pdb_find.h"
#include "symbols/symbol_result.h"

namespace windlass::symbols {

// Adds the lines of names' address number `index`: a procedure, with `lines` also the calls inlined there. False: no
// procedure is known at the address.
bool name_by_pdb(pdb::PdbFile& file, std::size_t index, std::uint32_t rva, bool lines, ModuleNames& names);

// The same by public symbols, without the image: PdbFile::public_of_piece().
bool name_by_public(pdb::PdbFile& file, std::size_t index, std::uint32_t rva, ModuleNames& names);

class PdbNames {
 public:
  explicit PdbNames(std::unique_ptr<OpenPdb> file) : file_(std::move(file)) {}

  bool name(std::size_t index, std::uint32_t rva, bool lines, ModuleNames& names) {
    return name_by_pdb(file_->pdb, index, rva, lines, names);
  }
  // As PdbFile::public_before().
  [[nodiscard]] std::optional<pdb::PdbFile::Symbol> public_before(std::uint32_t rva, bool any) {
    return file_->pdb.public_before(rva, any);
  }
  // As PdbFile::each_rva().
  void each_rva(FunctionRef<void(std::uint32_t)> add) { file_->pdb.each_rva(add); }
  [[nodiscard]] bool is_spent() const { return file_->pdb.is_spent(); }

 private:
  std::unique_ptr<OpenPdb> file_;
};

}  // namespace windlass::symbols
