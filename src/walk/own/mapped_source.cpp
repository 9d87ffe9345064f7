#include "walk/own/mapped_source.h"

#include <sys/auxv.h>

#include <algorithm>
#include <vector>

#include "base/static_storage.h"
#include "formats/dwarf/lower.h"
#include "lookup/sources/cfi_function.h"
#include "lookup/sources/indexed_row.h"
#include "walk/own/modules.h"
#include "windlass/backtrace.h"

namespace windlass::walk {
namespace {

using sources::ErrorSink;
using sources::Function;

// The call frame information around an address. The module that a caller means may have been unloaded, and another one
// be here.
Expected<void> cfi_at(std::uint64_t address, MappedCfi& cfi) {
  LoadedObject object;
  if (!find_loaded(address, object)) return fail(ErrorCode::kNotFound, "module has been unloaded", address);
  return map_cfi(object, cfi);
}

// In the order of their addresses; those that are known by now.
std::vector<dwarf::CfiSection> known_sections(ErrorSink report) {
  std::vector<dwarf::CfiSection> sections;
  OwnModules::for_each([&](const OwnModule& module) {
    MappedCfi cfi;
    if (const auto mapped = module.cfi(cfi); mapped)
      sections.push_back(cfi.eh_frame);
    else
      report(mapped.error());
  });
  std::ranges::sort(sections, {}, &dwarf::CfiSection::address);
  return sections;
}

class MappedSource final : public sources::UnwindSource {
 public:
  std::optional<Architecture> architecture() const override { return kOwnArchitecture; }

  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override {
    MappedCfi cfi;
    if (auto mapped = cfi_at(address, cfi); !mapped) return mapped;
    return sources::indexed_row(cfi.header, cfi.eh_frame, address, to);
  }

  Expected<Function> function_at(std::uint64_t address) const override {
    MappedCfi cfi;
    if (auto mapped = cfi_at(address, cfi); !mapped) return Failure(mapped.error());
    dwarf::LocatedFde found;
    if (auto located = cfi.header.find(cfi.eh_frame, address, found); !located) return Failure(located.error());
    return sources::function_of(cfi.eh_frame, 0, found.fde);
  }

  void for_each_function(sources::FunctionSink callback, ErrorSink report) const override {
    std::vector<Function> functions;
    for (const dwarf::CfiSection& section : known_sections(report)) {
      dwarf::CfiReader reader(section, report);
      for (dwarf::Fde fde; reader.next_fde(fde);)
        if (fde.begin < fde.end) functions.push_back(sources::function_of(section, 0, fde));
    }
    std::ranges::stable_sort(functions, {}, &Function::begin);
    for (const Function& function : functions)
      if (!callback(function)) return;
  }

  void for_each_row(const Function& function, sources::RowSink callback, ErrorSink report) const override {
    MappedCfi cfi;
    if (const auto mapped = cfi_at(function.begin, cfi); !mapped) return report(mapped.error());
    dwarf::CfiReader reader(cfi.eh_frame, report);
    const auto fde = reader.fde_at(function.record.address - cfi.eh_frame.address);
    if (!fde) return report(fde.error());
    if (const auto done = dwarf::for_each_row(cfi.eh_frame, *fde, callback); !done) report(done.error());
  }

  void for_each_row(sources::RowVisitor& visitor, ErrorSink report) const override {
    const auto give = [&](const FrameRow& row) { visitor.row(row); };
    for (const dwarf::CfiSection& section : known_sections(report)) {
      visitor.begin_section(section.name);
      dwarf::CfiReader reader(section, report);
      for (dwarf::Fde fde; visitor.wants_more() && reader.next_fde(fde);)
        if (const auto done = dwarf::for_each_row(section, fde, give); !done) report(done.error());
    }
  }

  std::uint64_t entry_point() const override { return ::getauxval(AT_ENTRY); }  // of the program
};

constinit const StaticStorage<MappedSource> mapped;

}  // namespace

[[gnu::hot]] const sources::UnwindSource& mapped_source() { return mapped.value; }

}  // namespace windlass::walk
