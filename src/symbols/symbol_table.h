// Finds the symbol that an address lies in. A wrong name is worse than none, so:
// - A symbol with a size names [st_value, st_value + st_size) and nothing else.
// - A symbol without a size (hand-written assembly) names the code behind it in its section, up to the next symbol.
//   Three conditions must hold. The code is near. By the unwind information, no function begins or ends in between. And
//   no function without a symbol can stand there: either the table is a full one, or the code, followed from the
//   symbol, comes by. A stripped file's .dynsym has no local functions. In musl's, memset has no size, and the code of
//   all blocking system calls stands behind it.
#pragma once

#include <elfutils/libdwfl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "flow/synthesis.h"

namespace windlass::symbols {

class SymbolTable {
 public:
  struct Symbol {
    std::string name;  // without a version; empty: the address lies in none
    std::uint64_t begin = 0;
  };

  // The module must outlive it.
  explicit SymbolTable(Dwfl_Module* module) : module_(module) {}
  // What at() will be asked for. The first few addresses are looked for in one pass over the symbols, without sorting
  // them. O(symbols log addresses).
  void expect(std::span<const std::uint64_t> addresses);
  // O(log symbols) for expected addresses. Else, and behind the first expect(), the symbols are read and sorted once:
  // O(symbols log symbols). Symbols without a size are read when first needed.
  [[nodiscard]] Symbol at(std::uint64_t address);

 private:
  static constexpr std::size_t kMostScanned = 256;  // addresses: a symbol may hold all of them
  struct Scanned {
    std::uint64_t address;
    int symbol;
  };
  // The symbol that names the addresses from `begin` to the next range's.
  struct Range {
    std::uint64_t begin;
    int symbol;  // its index in the module's table; 0: none
  };
  // Where something begins, for symbols without a size.
  struct Start {
    std::uint64_t value;
    std::uint64_t size;
    std::uint64_t section_end;
    int symbol;
  };

  void scan(std::span<const std::uint64_t> addresses);
  void read_sized();
  [[nodiscard]] int sized_at(std::uint64_t address);
  void read_starts();
  [[nodiscard]] Symbol symbol(int index) const;
  [[nodiscard]] Symbol without_size_at(std::uint64_t address);
  [[nodiscard]] bool code_leads_to(const Start& start, std::uint64_t address);

  Dwfl_Module* module_;
  std::vector<Scanned> scanned_;  // by address
  std::vector<Range> ranges_;     // ascending
  bool is_full_ = false;
  bool has_ranges_ = false, has_starts_ = false;
  std::vector<Start> starts_;  // ascending
  flow::OwnScratch scratch_;   // made when code is first followed
};

}  // namespace windlass::symbols
