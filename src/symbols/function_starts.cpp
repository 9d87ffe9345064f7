#include "symbols/function_starts.h"

#include <algorithm>
#include <string>

#include "dwarf/cfi.h"
#include "image/elf.h"
#include "image/unwind_sections.h"

namespace windlass::symbols {

namespace {

struct Range {
  std::uint64_t begin, end;
};

std::vector<Range> functions_of(const image::ElfImage& image) {
  const auto ignore = [](const Error&) {};
  const auto sections = image::find_unwind_sections(image, ignore);
  std::vector<Range> ranges;
  for (const auto& section : sections.sections) {
    dwarf::CfiReader reader(section, ignore);
    for (dwarf::Fde fde; reader.next_fde(fde);)
      if (fde.begin < fde.end && fde.begin != 0) ranges.push_back({fde.begin, fde.end});
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  return ranges;
}

}  // namespace

std::vector<std::uint64_t> function_starts(const profile::Module& module, std::span<const std::uint64_t> addresses) {
  for (const std::string& path : {module.open_path, module.path}) {
    if (!path.starts_with('/')) continue;
    const auto file = image::MappedFile::open(path);
    if (!file) continue;
    const auto image = image::ElfImage::parse(file->bytes());
    if (!image || image->build_id() != module.build_id) continue;
    const auto ranges = functions_of(*image);
    std::vector<std::uint64_t> starts;
    starts.reserve(addresses.size());
    for (const std::uint64_t address : addresses) {
      const auto after = std::upper_bound(ranges.begin(), ranges.end(), address,
                                          [](std::uint64_t a, const Range& range) { return a < range.begin; });
      const bool inside = after != ranges.begin() && address < std::prev(after)->end;
      starts.push_back(inside ? std::prev(after)->begin : 0);
    }
    return starts;
  }
  return {};
}

}  // namespace windlass::symbols
