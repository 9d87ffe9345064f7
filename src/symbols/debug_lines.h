// Functions, inlined frames and lines from DWARF, through libdw. Only units with a wanted address are read. These are
// found by .debug_aranges and, where a compiler leaves that out (clang), by the ranges of the unit entries. A unit's
// functions are indexed once. An address then costs a search and a descent into one function.
#pragma once

#include <elfutils/libdwfl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "symbols/symbol_result.h"

namespace windlass::symbols {

class DebugLines {
 public:
  // Opens the module's debug information, wherever it is. The module must outlive it.
  explicit DebugLines(Dwfl_Module* module);
  ~DebugLines();
  DebugLines(const DebugLines&) = delete;
  DebugLines& operator=(const DebugLines&) = delete;

  // Adds the lines of names' address number `index`. `symbol` names what DWARF leaves without a linkage name. An
  // address that no debug entry covers is left alone.
  void name(std::size_t index, std::uint64_t address, const std::string& symbol, ModuleNames& names);

  // The entry of the function at a pc and those of the calls inlined there, outermost first. Empty: no entry covers it.
  // Counted as the debug information does: by bias() less than the module's addresses.
  [[nodiscard]] std::vector<Dwarf_Die> scopes_at(Dwarf_Addr pc);
  [[nodiscard]] std::uint64_t bias() const { return bias_; }

 private:
  class Units;
  std::unique_ptr<Units> units_;  // null: there is no debug information
  std::uint64_t bias_ = 0;
};

}  // namespace windlass::symbols
