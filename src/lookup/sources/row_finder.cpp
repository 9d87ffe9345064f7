#include "lookup/sources/row_finder.h"

#include <algorithm>

#include "lookup/sources/cfi_sections.h"

namespace windlass::sources {

struct RowFinder::Section {
  struct Ignore {
    void operator()(const Error&) const {}
  };
  explicit Section(const dwarf::CfiSection& section) : reader(section, ignore), evaluator(section) {}
  Ignore ignore;
  dwarf::CfiReader reader;
  dwarf::RowEvaluator evaluator;
};

RowFinder::~RowFinder() = default;

std::unique_ptr<RowFinder> RowFinder::make(const image::ElfImage& image, bool without_eh_frame) {
  auto finder = std::unique_ptr<RowFinder>(new RowFinder);
  Section::Ignore ignore;
  finder->sections_ = find_row_sections(image, ignore);
  for (const dwarf::CfiSection& section : finder->sections_.sections)
    finder->readers_.push_back(std::make_unique<Section>(section));
  for (std::uint32_t i = 0; i < finder->readers_.size(); ++i) {
    if (!without_eh_frame || finder->sections_.sections[i].name != ".eh_frame") finder->index(i);
  }
  std::stable_sort(finder->entries_.begin(), finder->entries_.end(), [](const Entry& a, const Entry& b) {
    // Earlier sections win: .eh_frame is what the program itself unwinds by.
    return a.begin != b.begin ? a.begin < b.begin : a.section > b.section;
  });
  return finder->entries_.empty() ? nullptr : std::move(finder);
}

void RowFinder::index(std::uint32_t number) {
  constexpr std::size_t kMaxEntries = std::size_t{16} << 20;
  dwarf::CfiReader& reader = readers_[number]->reader;
  for (dwarf::Fde fde; entries_.size() < kMaxEntries && reader.next_fde(fde);) {
    if (fde.begin >= fde.end || fde.begin == 0) continue;  // 0: its section was discarded by the linker
    const std::uint64_t length = std::min<std::uint64_t>(fde.end - fde.begin, 0xffffffff);
    entries_.push_back({fde.begin, fde.offset, static_cast<std::uint32_t>(length), number});
  }
}

Expected<RowFinder::Located> RowFinder::locate(std::uint64_t address) {
  auto after = std::upper_bound(entries_.begin(), entries_.end(), address,
                                [](std::uint64_t a, const Entry& entry) { return a < entry.begin; });
  // Ranges may nest or repeat: a few entries back may still cover the address.
  for (int tries = 0; tries < 4 && after != entries_.begin(); ++tries) {
    --after;
    if (address - after->begin >= after->length) continue;
    const auto fde = readers_[after->section]->reader.fde_at(after->offset);
    if (!fde) return Failure(fde.error());
    return Located{after->section, *fde};
  }
  return fail(ErrorCode::kNotFound, "no row covers the address", address);
}

Expected<void> RowFinder::find(std::uint64_t address, FrameRow& to) {
  const auto found = locate(address);
  if (!found) return Failure(found.error());
  return readers_[found->section]->evaluator.row_at(found->fde, address, to);
}

void RowFinder::for_each(FunctionRef<bool(const Located&)> callback, dwarf::ErrorSink report) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (i + 1 < entries_.size() && entries_[i + 1].begin == entry.begin) continue;  // the last of them is preferred
    const auto fde = readers_[entry.section]->reader.fde_at(entry.offset);
    if (!fde)
      report(fde.error());
    else if (!callback({entry.section, *fde}))
      return;
  }
}

}  // namespace windlass::sources
