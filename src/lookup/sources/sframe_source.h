// The rows of an .sframe section, as a source of its own: what an ELF file's call frame information lacks.
#pragma once

#include "formats/sframe/read.h"
#include "lookup/sources/unwind_source.h"

namespace windlass::sources {

// row_at and function_at allocate nothing. The section's bytes must outlive it.
class SFrameSource final : public UnwindSource {
 public:
  explicit SFrameSource(const sframe::Section& section) : section_(section) {}

  std::optional<Architecture> architecture() const override { return section_.architecture(); }
  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override;
  Expected<Function> function_at(std::uint64_t address) const override;
  void for_each_function(FunctionSink callback, ErrorSink report) const override;
  void for_each_row(const Function& function, RowSink callback, ErrorSink report) const override;
  void for_each_row(RowVisitor& visitor, ErrorSink report) const override;

 private:
  sframe::Section section_;
};

}  // namespace windlass::sources
