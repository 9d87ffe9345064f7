// Names as the C interface hands them out.
#pragma once

#include <vector>

#include "windlass/c/symbols.h"
#include "windlass/symbols.h"

namespace windlass::symbols {

// The C structs of one address; they point into each other and to strings of the Symbolizer.
class NamedForC {
 public:
  const windlass_named_address& fill(const NamedAddress& from) {
    frames_.clear();
    pointers_.clear();
    // NOLINTBEGIN(bugprone-suspicious-stringview-data-usage): the Symbolizer's names end with a zero
    for (const SourceFrame& frame : from.frames)
      frames_.push_back(
          {sizeof(windlass_source_frame), frame.function.data(), frame.linkage_name.data(),
           frame.file.empty() ? nullptr : frame.file.data(), frame.line,
           (frame.inlined ? WINDLASS_FRAME_INLINED : 0) | (frame.interpreted ? WINDLASS_FRAME_INTERPRETED : 0)});
    // NOLINTEND(bugprone-suspicious-stringview-data-usage)
    for (const windlass_source_frame& frame : frames_) pointers_.push_back(&frame);
    named_ = {sizeof named_,   from.lookup,         from.module.empty() ? nullptr : from.module.data(),
              from.offset,     from.function_begin, pointers_.data(),
              pointers_.size()};
    return named_;
  }

 private:
  std::vector<windlass_source_frame> frames_;
  std::vector<const windlass_source_frame*> pointers_;
  windlass_named_address named_{};
};

}  // namespace windlass::symbols
