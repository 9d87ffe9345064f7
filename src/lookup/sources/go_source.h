// A Go program's table of functions, as a source of its own. The table knows all of Go's code, stripped or not. It also
// knows where stacks end and where they go on elsewhere. Go's linker writes neither into call frame information.
#pragma once

#include <memory>

#include "formats/go/rows.h"
#include "lookup/sources/unwind_source.h"

namespace windlass::sources {

// row_at and function_at as runtimes::go::GoRows. The image's bytes must outlive it.
class GoSource final : public UnwindSource {
 public:
  static constexpr std::string_view kSectionName = ".gopclntab";

  GoSource(const runtimes::go::Table& table, const runtimes::go::Program& program) : rows_(table, program) {}

  std::optional<Architecture> architecture() const override { return rows_.map().table().architecture; }
  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override { return rows_.row_at(address, to); }
  Expected<Function> function_at(std::uint64_t address) const override;
  void for_each_function(FunctionSink callback, ErrorSink report) const override;
  void for_each_row(const Function& function, RowSink callback, ErrorSink report) const override;
  void for_each_row(RowVisitor& visitor, ErrorSink report) const override;

 private:
  runtimes::go::GoRows rows_;
};

// Null where an image has none; `report` hears what is wrong with one that it has.
[[nodiscard]] std::unique_ptr<GoSource> find_go_source(const runtimes::go::Program& program, ErrorSink report);

}  // namespace windlass::sources
