// Rows given as data: of code made at run time, and whatever else comes without an image.
#pragma once

#include <vector>

#include "lookup/sources/unwind_source.h"

namespace windlass::sources {

// A function and the rows that hold in it, ascending and disjoint. Gaps between them are code that nothing is known of.
struct GivenFunction {
  Function function;  // `primary` 0: `begin`; `record` is the source's business
  std::vector<FrameRow> rows;
};

// row_at and function_at allocate nothing. What the rows' expressions are views of must outlive it, or be given to it.
class RowsSource final : public UnwindSource {
 public:
  // `functions` in any order, disjoint. kMalformed, `where` the address: a function without a range or over another
  // one, a row that is empty, outside of its function or over another one. Allocates; n log n.
  [[nodiscard]] static Expected<RowsSource> make(Architecture architecture, std::vector<GivenFunction> functions,
                                                 std::vector<std::byte> expressions = {});

  std::optional<Architecture> architecture() const override { return architecture_; }
  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override;
  Expected<Function> function_at(std::uint64_t address) const override;
  void for_each_function(FunctionSink callback, ErrorSink report) const override;
  void for_each_row(const Function& function, RowSink callback, ErrorSink report) const override;
  void for_each_row(RowVisitor& visitor, ErrorSink report) const override;
  std::uint64_t function_start(std::uint64_t address) const override;

 private:
  RowsSource(Architecture architecture, std::vector<GivenFunction> functions, std::vector<std::byte> expressions)
      : architecture_(architecture), functions_(std::move(functions)), expressions_(std::move(expressions)) {}
  [[nodiscard]] const GivenFunction* find(std::uint64_t address) const;

  Architecture architecture_;
  std::vector<GivenFunction> functions_;  // by begin
  std::vector<std::byte> expressions_;    // only kept
};

}  // namespace windlass::sources
