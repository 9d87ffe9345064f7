#include "lookup/sources/cfi_sections.h"

#include "base/registers.h"
#include "formats/dwarf/lower.h"

namespace windlass::sources {
namespace {

constexpr Error describes_no_function(const dwarf::CfiSection& section) {
  return {ErrorCode::kUnsupported, "one row by the frame pointer for all functions describes none of them",
          section.bytes.origin()};
}

bool is_frame_record(const FrameRow& row) {
  const RegisterRule* const saved = row.registers.find(x86_64::kRbp);
  return row.cfa == CfaRule::at(x86_64::kRbp, 16) && row.return_address == RegisterRule::at_cfa(-8) &&
         saved != nullptr && *saved == RegisterRule::at_cfa(-16);
}

// A part of one function that is jumped to has a single row by its frame pointer, too. Such parts are small, and stand
// beside the rows of the rest.
bool describes_functions(const dwarf::CfiSection& section) {
  constexpr std::size_t kMostBytes = 256;
  constexpr std::uint64_t kLeastCode = 4096;
  if (section.architecture != Architecture::kX86_64 || section.bytes.size() > kMostBytes) return true;
  const auto ignore = [](const Error&) {};
  dwarf::CfiReader reader(section, ignore);
  dwarf::RowEvaluator evaluator(section);
  std::uint64_t covered = 0;
  for (dwarf::Fde fde; reader.next_fde(fde);) {
    std::size_t rows = 0, records = 0;
    const auto count = [&](const FrameRow& row) {
      ++rows;
      records += is_frame_record(row) ? 1 : 0;
    };
    if (!evaluator.for_each_row(fde, count) || rows != 1 || records != 1) return true;
    covered += fde.end - fde.begin;
  }
  return covered < kLeastCode;
}

}  // namespace

image::UnwindSections find_row_sections(const image::ElfImage& image, dwarf::ErrorSink report) {
  image::UnwindSections found = image::find_unwind_sections(image, report);
  std::erase_if(found.sections, [&](const dwarf::CfiSection& section) {
    if (section.is_debug_frame || describes_functions(section)) return false;
    report(describes_no_function(section));
    return true;
  });
  return found;
}

Expected<dwarf::CfiSection> find_row_eh_frame(const image::ElfImage& image) {
  auto found = image::find_eh_frame(image);
  if (found && !describes_functions(*found)) return Failure(describes_no_function(*found));
  return found;
}

}  // namespace windlass::sources
