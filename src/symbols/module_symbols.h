// The sources of names for one module: its ELF file, its PE image, the map of its JIT compiler, or the kernel's
// symbols.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "profiler/profile/profile.h"
#include "symbols/function_starts.h"
#include "symbols/pe_symbols.h"
#include "symbols/symbol_file.h"
#include "symbols/symbol_result.h"
#include "symbols/symbolize.h"

namespace windlass::symbols {

// One thread at a time. Opens its file when first asked and keeps it open.
class ModuleSymbols {
 public:
  // `options` must outlive it.
  ModuleSymbols(profile::Module module, const SymbolizeOptions& options)
      : module_(std::move(module)), options_(options) {}

  [[nodiscard]] const profile::Module& module() const { return module_; }
  // Opens its file, if that has not been done. False: it has none that can be read.
  bool open();
  // `addresses` ascending, numbered as Location::address is. Text (/proc/kallsyms, perf-PID.map) is read anew each
  // time.
  void name(std::span<const std::uint64_t> addresses, ModuleNames& names);
  // Of which the file is one, once it is open; null: it is none.
  [[nodiscard]] PeSymbolFile* pe() { return pe_ ? &*pe_ : nullptr; }
  [[nodiscard]] SymbolFile* elf() { return elf_.get(); }
  // The debug information of an ELF file; null: there is none.
  [[nodiscard]] DebugLines* debug_lines();

 private:
  void name_from_map(std::span<const std::uint64_t> addresses, ModuleNames& names) const;
  void add_function_starts(std::span<const std::uint64_t> addresses, ModuleNames& names);

  profile::Module module_;
  const SymbolizeOptions& options_;
  std::optional<PeSymbolFile> pe_;
  std::unique_ptr<SymbolFile> elf_;
  std::optional<FunctionStarts> starts_;  // of an ELF file, once an address has no name
};

}  // namespace windlass::symbols
