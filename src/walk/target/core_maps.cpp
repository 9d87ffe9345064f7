#include "walk/target/core_maps.h"

#include <algorithm>

#include <elf.h>

#include "base/pages.h"
#include "walk/target/link_map.h"
#include "walk/target/memory_image.h"

namespace windlass::walk {
namespace {

using os::ProcMap;

std::vector<ProcMap> maps_of_notes(const image::CoreFile& core) {
  std::vector<ProcMap> maps;
  for (const image::CoreMapping& mapping : core.mappings) {
    ProcMap map;
    map.begin = mapping.begin;
    map.end = mapping.end;
    map.offset = mapping.offset;
    map.path = mapping.path;
    map.deleted = mapping.deleted;
    map.readable = true;  // a core does not say
    // gcore leaves mappings without dumped pages out of the segments.
    const image::CoreSegment* segment = core.segment_at(mapping.begin);
    map.presumed = segment == nullptr;
    map.executable = segment == nullptr || segment->executable;
    maps.push_back(std::move(map));
  }
  return maps;
}

void add_code_in_no_file(const image::CoreFile& core, std::vector<ProcMap>& maps) {
  const std::uint64_t vdso = core.auxiliary_value(AT_SYSINFO_EHDR).value_or(0);
  const std::size_t files = maps.size();
  for (const image::CoreSegment& segment : core.segments) {
    if (!segment.executable) continue;
    const auto behind = std::upper_bound(maps.begin(), maps.begin() + static_cast<long>(files), segment.begin,
                                         [](std::uint64_t a, const ProcMap& map) { return a < map.begin; });
    if (behind != maps.begin() && segment.begin < behind[-1].end) continue;
    ProcMap map;
    map.begin = segment.begin;
    map.end = segment.end;
    map.executable = true;
    if (vdso != 0 && vdso == segment.begin) map.path = "[vdso]";
    maps.push_back(std::move(map));
  }
  std::ranges::stable_sort(maps, {}, &ProcMap::begin);
}

bool is_unnamed_code(const ProcMap& map) { return map.executable && map.path.empty(); }

// Do the headers of the image that has `part` put code into all of [begin, end)?
bool is_code_of(const std::vector<ProcMap>& maps, const ProcMap& part, std::uint64_t begin, std::uint64_t end,
                const Memory& memory) {
  const auto first = std::ranges::find_if(
      maps, [&](const ProcMap& map) { return map.path == part.path && map.offset == 0 && map.begin <= part.begin; });
  if (first == maps.end()) return false;
  const auto headers = read_loaded_headers(memory, first->begin);
  if (!headers) return false;
  return std::ranges::any_of(headers->segments, [&](const image::Segment& segment) {
    const std::uint64_t from = (segment.vaddr + headers->bias) & ~(kSmallestPage - 1);
    return segment.type == PT_LOAD && (segment.flags & PF_X) != 0 && from <= begin &&
           end - from <=
               ((segment.vaddr + headers->bias - from + segment.memsz + kSmallestPage - 1) & ~(kSmallestPage - 1));
  });
}

void name_moved_code(std::vector<ProcMap>& maps, const Memory& memory) {
  for (std::size_t first = 1; first < maps.size(); ++first) {
    std::size_t behind = first;
    while (behind < maps.size() && is_unnamed_code(maps[behind]) && maps[behind].begin == maps[behind - 1].end)
      ++behind;
    if (behind == first || behind == maps.size() || maps[behind].begin != maps[behind - 1].end) continue;
    const ProcMap before = maps[first - 1];
    const bool one_file = before.has_file() && before.path == maps[behind].path &&
                          before.begin - before.offset == maps[behind].begin - maps[behind].offset;
    if (!one_file || !is_code_of(maps, before, before.end, maps[behind].begin, memory)) continue;
    for (; first < behind; ++first) {
      maps[first].offset = before.offset + (maps[first].begin - before.begin);
      maps[first].path = before.path;
      maps[first].deleted = before.deleted;
      maps[first].readable = true;
    }
  }
}

}  // namespace

std::vector<ProcMap> maps_of(const image::CoreFile& core, const Memory& memory) {
  std::vector<ProcMap> maps = core.mappings.empty() ? maps_of_link_map(core, memory) : maps_of_notes(core);
  add_code_in_no_file(core, maps);
  name_moved_code(maps, memory);
  return maps;
}

std::string program_of(const image::CoreFile& core, const std::vector<ProcMap>& maps) {
  const std::uint64_t entry = core.auxiliary_value(AT_ENTRY).value_or(0);
  for (const ProcMap& map : maps)
    if (entry >= map.begin && entry < map.end && map.has_file()) return map.path;
  return {};
}

}  // namespace windlass::walk
