// Code in no image that Windows x64 function tables describe: of RtlAddFunctionTable(), RtlAddGrowableFunctionTable(),
// RtlInstallFunctionTableCallback(), or given as data.
#pragma once

#include <cstdint>
#include <memory>

#include "lookup/sources/unwind_source.h"
#include "windlass/format/winx64.h"
#include "windlass/jit/code_range.h"

namespace windlass::sources {

// An entry, and the address that RVAs count from.
struct TableEntry {
  std::uint64_t base = 0;
  winx64::RuntimeFunction function = {};

  [[nodiscard]] std::uint64_t begin() const { return base + function.begin; }
  [[nodiscard]] std::uint64_t end() const { return base + function.end; }
};

// Addresses of the process. There are no rows: epilogues are known by the code, which is read at each unwind. So is the
// unwind information, unless the source holds it.
class FunctionTables : public UnwindSource {
 public:
  std::optional<Architecture> architecture() const final { return Architecture::kX86_64; }
  bool is_windows() const final { return true; }
  // kUnsupported if an entry covers the address.
  Expected<void> row_at(std::uint64_t address, FrameRow& to) const final;
  Expected<Function> function_at(std::uint64_t address) const final;
  Expected<HandlerCall> unwind(const Callee& callee, Registers& caller, SavedLocations& saved) const final;
  std::uint64_t function_start(std::uint64_t address) const final;
  // Tables cannot be listed.
  void for_each_function(FunctionSink, ErrorSink) const final {}
  void for_each_row(const Function&, RowSink, ErrorSink) const final {}
  void for_each_row(RowVisitor&, ErrorSink) const final {}

  // The entry that contains an address. False: none does.
  [[nodiscard]] virtual bool find(std::uint64_t address, TableEntry& to) const = 0;

 protected:
  // Copies what the source holds of the process's memory. False: that is to be read.
  [[nodiscard]] virtual bool read_held(std::uint64_t /*address*/, void* /*to*/, std::size_t /*size*/) const {
    return false;
  }
};

// A table that is given as data; the bytes are copied. Errors: kOutOfRange, with the RVA of an entry that is not in
// [begin, end). Those of reading the table and its records.
[[nodiscard]] Expected<std::unique_ptr<UnwindSource>> make_table_source(const FunctionTable& table, std::uint64_t begin,
                                                                        std::uint64_t end);

}  // namespace windlass::sources
