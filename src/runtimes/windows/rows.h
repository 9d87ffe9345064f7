// The frames of code that a function table describes: a page of a function at most, with what its rows depend on.
// Unwind codes describe the prologue. Epilogues are known by the code.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "formats/winx64/lower.h"
#include "runtimes/runtime_code.h"
#include "runtimes/windows/tables.h"

namespace windlass::runtimes::windows {

class TableCode final : public Method {
 public:
  // The part around an address of the function. Errors: what cannot be read.
  [[nodiscard]] static Expected<std::unique_ptr<TableCode>> read(const Memory& memory, const Table& table,
                                                                 const winx64::RuntimeFunction& function,
                                                                 std::uint64_t address);

  // Are the table's entry, the codes and the instructions what they were?
  [[nodiscard]] bool is_still(const Memory& memory, const TableList& list) const;

  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override;
  void for_each_row(sources::RowSink row, sources::ErrorSink report) const override;
  std::size_t bytes() const override { return sizeof *this + code_.size() + records_bytes_; }

 private:
  using Copy = std::pair<std::uint64_t, std::vector<std::byte>>;  // address, bytes

  TableCode(const Table& table, const winx64::RuntimeFunction& function) : table_(table), function_(function) {}
  Expected<void> read_code(const Memory& memory, std::uint64_t address);
  Expected<void> read_records(const Memory& memory);
  [[nodiscard]] ByteView bytes_at(std::uint32_t rva, std::uint32_t wanted) const;

  Table table_;
  winx64::RuntimeFunction function_;
  std::uint64_t code_begin_ = 0;
  std::vector<std::byte> code_;
  std::vector<Copy> records_;  // of the chain
  std::size_t records_bytes_ = 0;
};

}  // namespace windlass::runtimes::windows
