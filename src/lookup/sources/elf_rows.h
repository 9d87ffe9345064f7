// What the rows of an ELF file are read from, and in which order. A Go program's own table has the first word, then
// call frame information, then SFrame. For example, a function that .eh_frame and .sframe describe has the rows of
// .eh_frame.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "formats/image/elf.h"
#include "formats/image/unwind_sections.h"
#include "lookup/sources/go_source.h"
#include "lookup/sources/sframe_source.h"

namespace windlass::sources {

// The formats beside call frame information, whose readers differ: one asks an index, another evaluates all.
class ElfRows {
 public:
  // `report` hears what is wrong with what the image has. The image's bytes must outlive it.
  ElfRows(const image::ElfImage& image, ErrorSink report) : go_(find_go_source(image, report)) {
    if (const auto section = image::find_sframe(image))
      simple_.emplace(*section);
    else if (section.error().code != ErrorCode::kNotFound)
      report(section.error());
  }

  // Null: it has none.
  [[nodiscard]] const GoSource* go() const { return go_.get(); }
  [[nodiscard]] const SFrameSource* simple() const { return simple_ ? &*simple_ : nullptr; }

  // The answer for one address: `ask` is called with GoSource, `cfi` and SFrameSource, until one answers. `cfi` has the
  // word unless it covers nothing there.
  template <typename Cfi, typename Ask>
  [[nodiscard]] auto first(const Cfi& cfi, const Ask& ask) const {
    if (go_)
      if (auto found = ask(*go_)) return found;
    auto found = ask(cfi);
    return found || !simple_ || found.error().code != ErrorCode::kNotFound ? found : ask(*simple_);
  }

  // Calls `other` with GoSource, `cfi` for each section, and `other` with SFrameSource.
  template <typename Cfi, typename Other>
  void each(const image::UnwindSections& sections, const Cfi& cfi, const Other& other) const {
    if (go_) other(*go_);
    for (const dwarf::CfiSection& section : sections.sections) cfi(section);
    if (simple_) other(*simple_);
  }

 private:
  std::unique_ptr<GoSource> go_;
  std::optional<SFrameSource> simple_;
};

}  // namespace windlass::sources
