// Names from an ELF file: its symbol tables, its linkage stubs, its DWARF. One object a module and thread; libdw's
// handles are not shared.
#pragma once

#include <elfutils/libdwfl.h>

#include <cstdint>
#include <span>
#include <string>

#include "symbols/symbol_result.h"
#include "symbols/symbolize.h"

namespace windlass::symbols {

class SymbolFile {
 public:
  SymbolFile(const profile::Module& module, const SymbolizeOptions& options);
  ~SymbolFile();
  SymbolFile(const SymbolFile&) = delete;
  SymbolFile& operator=(const SymbolFile&) = delete;

  [[nodiscard]] bool opened() const { return module_ != nullptr; }
  [[nodiscard]] const std::string& note() const { return note_; }
  // `addresses` ascending, in the file's own numbering.
  void name(std::span<const std::uint64_t> addresses, ModuleNames& names);

 private:
  bool open(const profile::Module& module, const std::string& path, bool trust_without_build_id);
  bool report(const profile::Module& module, int fd, bool trust_without_build_id);

  const SymbolizeOptions& options_;
  std::string debug_path_;
  char* debug_path_pointer_ = nullptr;
  Dwfl_Callbacks callbacks_{};
  Dwfl* dwfl_ = nullptr;
  Dwfl_Module* module_ = nullptr;
  std::string note_;
};

// The symbol each address lies in, empty where none does: see symbol_table.cpp for what counts. Same order; `begins`
// (as many) gets where each symbol begins.
[[nodiscard]] std::vector<std::string> symbols_at(Dwfl_Module* module, std::span<const std::uint64_t> addresses,
                                                  std::span<std::uint64_t> begins);
// "name@plt" where the address lies in a linkage stub whose target is known, else empty.
[[nodiscard]] std::vector<std::string> plt_names_at(Dwfl_Module* module, std::span<const std::uint64_t> addresses);
// Adds functions, inlined frames and lines from DWARF. `symbols` (same order) name what DWARF leaves without a linkage
// name. Addresses that no debug entry covers are left alone.
void name_from_dwarf(Dwfl_Module* module, std::span<const std::uint64_t> addresses,
                     std::span<const std::string> symbols, ModuleNames& names);

}  // namespace windlass::symbols
