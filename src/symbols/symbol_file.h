// Names from an ELF file: a Go program's own table, its symbol tables, its linkage stubs, its DWARF. Each is read when
// first needed, and kept. One thread at a time; libdw's handles are not shared between objects.
#pragma once

#include <elfutils/libdwfl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "symbols/debug_lines.h"
#include "symbols/go_names.h"
#include "symbols/plt_names.h"
#include "symbols/symbol_result.h"
#include "symbols/symbol_table.h"
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
  // `addresses` in the file's own numbering.
  void name(std::span<const std::uint64_t> addresses, ModuleNames& names);
  // Null: there is no file.
  [[nodiscard]] Dwfl_Module* module() const { return module_; }
  // Null: it is not wanted, or there is no file.
  [[nodiscard]] DebugLines* debug_lines();

 private:
  bool open(const profile::Module& module, const std::string& path, bool trust_without_build_id);
  bool report(const profile::Module& module, int fd, bool trust_without_build_id);

  const SymbolizeOptions& options_;
  std::string debug_path_;
  char* debug_path_pointer_ = nullptr;
  std::vector<std::string> debug_trees_;  // the same without what is beside the file
  Dwfl_Callbacks callbacks_{};
  Dwfl* dwfl_ = nullptr;
  Dwfl_Module* module_ = nullptr;
  std::string note_;
  std::unique_ptr<GoNames> go_;  // null: no program of Go's
  std::optional<SymbolTable> symbols_;
  std::optional<DebugLines> debug_lines_;
  std::optional<StubNames> stubs_;
};

}  // namespace windlass::symbols
