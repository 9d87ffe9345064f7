// Names from a PE image: its COFF symbols (MinGW) and its exports, where functions begin by its function table.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mapped_file.h"
#include "formats/image/pe.h"
#include "lookup/sources/unwind_source.h"
#include "profiler/profile/profile.h"
#include "symbols/symbol_result.h"

namespace windlass::symbols {

// The image that was mapped as `module`, if it is one.
class PeSymbolFile {
 public:
  // Empty: the file cannot be read, is no PE image or another one (its CodeView identity differs).
  [[nodiscard]] static std::optional<PeSymbolFile> open(const profile::Module& module);

  // `addresses` are ascending RVAs. A symbol has no size. It names the code behind it up to the next symbol, but not
  // beyond its function, as the function table has that, nor beyond the gap between two of the table's functions.
  void name(std::span<const std::uint64_t> addresses, ModuleNames& names) const;
  [[nodiscard]] const sources::UnwindSource& source() const { return *source_; }

 private:
  struct Tables;
  PeSymbolFile(MappedFile file, image::PeImage image);

  MappedFile file_;
  image::PeImage image_;  // a view of file_
  std::unique_ptr<sources::UnwindSource> source_;
  std::shared_ptr<const Tables> tables_;  // what names are looked up in
};

}  // namespace windlass::symbols
