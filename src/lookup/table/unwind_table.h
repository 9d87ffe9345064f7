// A module's dense unwind table: a page of rows for every 64 KiB of code that has any. The byte layout is the one of
// windlass_table_layout.h, so that loading a table into the arena is copying it and patching its references.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "lookup/table/trace_row.h"
#include "windlass/error.h"

namespace windlass::table {

class Arena;

// What went into a table, for people and for the bound of 3 bytes a row.
struct TableStats {
  std::uint64_t functions = 0;          // ranges given to the builder (FDEs)
  std::uint64_t raw_rows = 0;           // rows given to the builder
  std::uint64_t rows = 0;               // rows in the pages, after merging and with the rows that say "nothing here"
  std::uint64_t escapes = 0;            // of these, rows whose rule is not in the palette
  std::uint64_t overlaps = 0;           // functions that begin inside another one
  std::uint64_t clipped_functions = 0;  // partly outside the executable segments
  std::uint64_t dropped_functions = 0;  // empty, inverted, or wholly outside the executable segments
  std::uint64_t dropped_rows = 0;       // rows outside their function or not ascending
};

// The sizes in bytes of the parts of one page.
struct PageShape {
  std::uint32_t rows = 0;
  std::uint32_t escapes = 0;
  std::uint32_t escapes_offset = 0;  // from the page's start, of the u64 count
  [[nodiscard]] std::uint32_t bytes() const {
    return escapes_offset + 8 + escapes * static_cast<std::uint32_t>(sizeof(wl_escape));
  }
};

class UnwindTable {
 public:
  // The rule in force at `address` (as the module numbers its addresses). Never null: rules()[0], the all-zero rule of
  // kind WL_CFA_NONE, where no row covers the address. O(1) to the block, then a scan of the block's rows.
  // Thread-safe and signal-safe.
  [[nodiscard]] const TraceRule& find(std::uint64_t address) const;

  [[nodiscard]] std::uint64_t first_page() const { return first_page_; }
  // One entry for every 64 KiB: the page's start in 8-byte units from pages(), 0 = no page. Entries may share a page.
  [[nodiscard]] std::span<const std::uint32_t> directory() const { return directory_; }
  [[nodiscard]] std::span<const std::uint64_t> pages() const { return pages_; }
  // [0] is the all-zero rule. The first WL_PALETTE_RULES are the palette, most used first; escapes name any.
  [[nodiscard]] std::span<const TraceRule> rules() const { return rules_; }
  // The DWARF number of the register rules track as `x`, or WL_NO_XREG.
  [[nodiscard]] std::uint8_t x_reg() const { return x_reg_; }
  [[nodiscard]] const TableStats& stats() const { return stats_; }
  [[nodiscard]] bool empty() const { return directory_.empty(); }

  [[nodiscard]] const std::byte* page(std::uint32_t directory_entry) const {
    return reinterpret_cast<const std::byte*>(pages_.data() + directory_entry);
  }
  [[nodiscard]] static PageShape shape(const std::byte* page);

  // Everything a loaded table takes: directory, pages, palette and escape rules.
  [[nodiscard]] std::size_t bytes() const;

 private:
  friend class TableBuilder;
  friend class StoredTable;
  std::uint64_t first_page_ = 0;
  std::vector<std::uint32_t> directory_;
  std::vector<std::uint64_t> pages_;  // [0] is unused, so that 0 can mean "no page"
  std::vector<TraceRule> rules_{TraceRule{}};
  std::uint8_t x_reg_ = WL_NO_XREG;
  TableStats stats_;
};

// ---- loading into an arena ----------------------------------------------------------------------------------------

// What load_table() took of an arena.
struct ArenaPiece {
  std::uint32_t ref;
  std::uint32_t bytes;
};

// A table in the arena: what the kernel side needs to find it, and the pieces to give back when the module is gone.
struct LoadedTable {
  wl_module module{};
  std::vector<ArenaPiece> pieces;
};

// Copies `table` into `arena`, all references patched. On an error (the arena's) everything taken has been
// given back. Linear in the table; thread-safe.
[[nodiscard]] Expected<LoadedTable> load_table(const UnwindTable& table, Arena& arena);

}  // namespace windlass::table
