// The symbol file of a program, a library, a separate debug file or a PDB file. Not in the static file.
#pragma once

#include <string>

#include "symbols/symbolize.h"
#include "windlass/error.h"

namespace windlass::symbols {

struct WrittenSymbols {
  std::string build_id, name;
  std::uint64_t rank = 0;  // of the symbol file: wlsym::rank_of()
  std::string file;        // the bytes
};

// Reads all symbols and debug information of a file: those in it, or in separate files, which `options` say where to
// look for. The names are those that symbolize() gives, for every address of the code.
//
// Errors: kSystem, the file cannot be opened (`detail` is errno). kUnsupported: no ELF file, PE image or PDB file.
// kMalformed, or kNotFound: without a build id, or without names.
[[nodiscard]] Expected<WrittenSymbols> write_symbols(const std::string& path, const SymbolizeOptions& options = {});

}  // namespace windlass::symbols
