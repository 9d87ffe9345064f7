// Names of a PE image: from the own tables of a Go program or of .NET's code, its PDB file, else its COFF symbols
// (MinGW) and its exports, where functions begin by its function table.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "formats/image/pe.h"
#include "lookup/sources/unwind_source.h"
#include "profiler/profile/profile.h"
#include "symbols/go_names.h"
#include "symbols/net_names.h"
#include "symbols/pdb_names.h"
#include "symbols/symbol_result.h"
#include "symbols/symbolize.h"

namespace windlass::symbols {

// The image that was mapped as `module`, if it is one.
class PeSymbolFile {
 public:
  // Empty: the file cannot be read, is no PE image or another one (its CodeView identity differs).
  // Looks for the PDB file, too.
  [[nodiscard]] static std::optional<PeSymbolFile> open(const profile::Module& module, const SymbolizeOptions& options);

  // `addresses` are ascending RVAs. A procedure of the PDB file names an address that it contains. Other symbols have
  // no size. Such a symbol names the code behind it up to the next symbol, but not beyond its function, as the function
  // table has that, nor beyond the gap between two of the table's functions.
  void name(std::span<const std::uint64_t> addresses, ModuleNames& names);
  // The RVAs at which name() may have another answer, in no order.
  void add_points(std::vector<std::uint64_t>& to);
  // So much was read of the PDB file that addresses get no inlined calls any more.
  [[nodiscard]] bool is_spent() const { return pdb_ && pdb_->is_spent(); }
  [[nodiscard]] const sources::UnwindSource& source() const { return *source_; }

 private:
  struct Tables;
  PeSymbolFile(MappedFile file, image::PeImage image);
  void find_pdb(const profile::Module& module, const SymbolizeOptions& options);
  void name_by_symbols(std::size_t index, std::uint32_t rva, ModuleNames& names);

  MappedFile file_;
  image::PeImage image_;  // a view of file_
  std::unique_ptr<sources::UnwindSource> source_;
  std::shared_ptr<const Tables> tables_;  // what names are looked up in
  std::unique_ptr<GoNames> go_;           // null: no program of Go's
  std::unique_ptr<NetNames> net_;         // null: no code of .NET's
  std::optional<PdbNames> pdb_;
  std::string note_;  // why names are missing, if it is worth a sentence
  bool lines_ = true;
};

}  // namespace windlass::symbols
