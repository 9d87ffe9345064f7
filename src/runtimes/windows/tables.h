// The function tables that a Windows x64 process has registered for code in no image, in the list that ntdll.dll keeps.
//
// RtlAddFunctionTable, RtlAddGrowableFunctionTable, RtlInstallFunctionTableCallback (Microsoft); Windows' entries as
// ntrtl.h has them (DYNAMIC_FUNCTION_TABLE), Wine's as dlls/ntdll/exception.c (struct dynamic_unwind_entry).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "windlass/format/winx64.h"
#include "windlass/walk.h"

namespace windlass::runtimes::windows {

// Where the list is, and how its entries are laid out.
struct TableList {
  std::uint64_t head = 0;
  bool of_wine = false;
};

// In the image whose first byte is mapped at `base`. kNotFound: it is no ntdll.dll of x64, or its code gives no list.
[[nodiscard]] Expected<TableList> find_list(const Memory& memory, std::uint64_t base);

// An entry of the list.
struct Table {
  std::uint64_t address = 0, previous = 0;  // of the entry, and of the one before
  std::uint64_t begin = 0, end = 0;         // the code that it is asked for
  std::uint64_t base = 0;                   // RVAs count from here
  std::uint64_t functions = 0;              // where the RUNTIME_FUNCTIONs are
  std::uint32_t count = 0;
  bool sorted = true;
  std::uint64_t callback = 0;  // 0: none. A function of the process that makes the entries
  std::uint64_t library = 0;   // of a callback: where the path of the DLL is that does so out of the process; 0: none

  [[nodiscard]] bool contains(std::uint64_t address_of_code) const {
    return address_of_code >= begin && address_of_code < end;
  }
  bool operator==(const Table&) const = default;
};
inline constexpr std::size_t kMostTables = 65536;

// In the order in which the system asks them, kMostTables at most. What can be read of a list that changes.
[[nodiscard]] std::vector<Table> read_tables(const Memory& memory, const TableList& list);
// Is a table still in the list, as it was? Constant.
[[nodiscard]] bool is_still(const Memory& memory, const TableList& list, const Table& table);
// The entry whose function contains an address of the process. kNotFound: none does. kUnsupported: a callback has it.
[[nodiscard]] Expected<winx64::RuntimeFunction> function_at(const Memory& memory, const Table& table,
                                                            std::uint64_t address);
// The path of the DLL, as ASCII; empty: none, or it cannot be read.
[[nodiscard]] std::string library_of(const Memory& memory, const Table& table);

}  // namespace windlass::runtimes::windows
