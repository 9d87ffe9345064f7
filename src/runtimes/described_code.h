// A method whose only description is its code, all of which is known. Rows are made from the first instruction on
// (windlass/jit/describe.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtimes/runtime_code.h"
#include "windlass/frame_row.h"

namespace windlass::runtimes {

// Of code in a frame by rbp. Its compiler makes calls from nowhere else, and keeps none of C's other registers. Which
// ones the way from C has kept, that way's unwind information does not say.
[[nodiscard]] FrameRow frame_row(std::uint64_t begin, std::uint64_t end);

class DescribedCode : public Method {
 public:
  // Ascending, disjoint, in addresses of the process, without expressions.
  explicit DescribedCode(std::vector<FrameRow> rows) : rows_(std::move(rows)) {}

  [[nodiscard]] std::span<const FrameRow> rows() const { return rows_; }
  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override;
  void for_each_row(sources::RowSink row, sources::ErrorSink report) const override;
  std::size_t bytes() const override { return sizeof *this + rows_.size() * sizeof(FrameRow) + name.size(); }

 private:
  std::vector<FrameRow> rows_;
};

}  // namespace windlass::runtimes
