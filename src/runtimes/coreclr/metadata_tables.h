// The tables and heaps of a .NET module's metadata, where the process has it mapped. ECMA-335 (6th edition) II.24; the
// tables' columns II.22.
//
// Of hostile memory: opening reads headers alone; a column is read when it is asked for, and bounded by its table.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "windlass/error.h"
#include "windlass/walk.h"

namespace windlass::runtimes::coreclr {

enum class Table : std::uint8_t {
  kTypeRef = 0x01,
  kTypeDef = 0x02,
  kField = 0x04,
  kMethodDef = 0x06,
  kParam = 0x08,
  kTypeSpec = 0x1b,
  kNestedClass = 0x29,
  kGenericParam = 0x2a,
};

// What a token or a coded index leads to. Rows count from 1; 0: to none.
struct TableRow {
  Table table = Table::kTypeDef;
  std::uint32_t row = 0;
};

class MetadataTables {
 public:
  static constexpr std::size_t kMaxName = 1024;
  static constexpr std::size_t kMaxBlob = 4096;

  // Opens the tables of the PE image at `base`. The image is laid out as the loader maps it or, `flat`, as in the file.
  // kUnreadable. kMalformed: there is no image. kUnsupported: edited metadata.
  [[nodiscard]] static Expected<MetadataTables> open(const Memory& memory, std::uint64_t base, bool flat);

  [[nodiscard]] std::uint32_t rows(Table table) const { return layout(table).rows; }
  // Nothing: there is no such row, or it cannot be read.
  [[nodiscard]] std::optional<std::uint32_t> column(const Memory& memory, TableRow row, unsigned number) const;
  // The first row whose column has a value, in a table that is sorted by it.
  [[nodiscard]] std::optional<std::uint32_t> find_sorted(const Memory& memory, Table table, unsigned number,
                                                         std::uint32_t value) const;
  // The TypeDef that a MethodDef belongs to; 0: to none. Logarithmic in the types.
  [[nodiscard]] std::uint32_t owner_of(const Memory& memory, std::uint32_t method) const;
  // Empty: none, or it cannot be read.
  [[nodiscard]] std::string string_at(const Memory& memory, std::uint32_t offset) const;
  // II.24.2.4; cut at kMaxBlob.
  [[nodiscard]] std::string blob_at(const Memory& memory, std::uint32_t offset) const;

 private:
  static constexpr std::size_t kTables = 64, kMaxColumns = 9;
  struct Heap {
    std::uint64_t address = 0;
    std::uint32_t size = 0;
  };
  struct TableLayout {
    std::uint64_t address = 0;
    std::uint32_t rows = 0;
    std::uint8_t row_size = 0;
    std::uint8_t columns = 0;
    std::array<std::uint8_t, kMaxColumns> offset{}, size{};
  };
  [[nodiscard]] const TableLayout& layout(Table table) const { return tables_[static_cast<std::size_t>(table)]; }
  [[nodiscard]] Expected<void> read_streams(const Memory& memory, std::uint64_t root, Heap& tables);
  [[nodiscard]] Expected<void> read_layout(const Memory& memory, const Heap& tables);
  [[nodiscard]] unsigned width_of(std::uint8_t kind, std::uint8_t heap_sizes) const;

  Heap strings_, blobs_;
  std::array<TableLayout, kTables> tables_{};
};

}  // namespace windlass::runtimes::coreclr
