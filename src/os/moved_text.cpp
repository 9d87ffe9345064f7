#include "os/moved_text.h"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "os/descriptor.h"
#include "os/mapped_files.h"
#include "os/process_memory.h"

namespace windlass::os {
namespace {

bool is_unnamed_code(const ProcMap& map) { return map.executable && map.path.empty(); }

bool is_one_file(const ProcMap& a, const ProcMap& b) {
  return a.has_file() && a.path == b.path && a.file == b.file && a.begin - a.offset == b.begin - b.offset;
}

bool is_elf(const Descriptor& file) {
  char magic[SELFMAG];
  return ::pread(file.get(), magic, sizeof magic, 0) == sizeof magic && std::memcmp(magic, ELFMAG, SELFMAG) == 0;
}

// Of the first and the last part of the mapping and some between.
bool is_content(const ProcMap& map, const Descriptor& file, const Memory& memory) {
  constexpr std::size_t kPart = 4096;
  constexpr std::uint64_t kParts = 16;
  const std::uint64_t last = (map.end - map.begin - 1) / kPart;
  std::array<std::byte, kPart> in_file, in_memory;
  for (std::uint64_t i = 0; i < kParts; ++i) {
    const std::uint64_t offset = last * i / (kParts - 1) * kPart;
    const std::size_t size = std::min<std::uint64_t>(kPart, map.end - map.begin - offset);
    if (::pread(file.get(), in_file.data(), size, static_cast<off_t>(map.offset + offset)) !=
            static_cast<ssize_t>(size) ||
        !memory.read(map.begin + offset, in_memory.data(), size) ||
        std::memcmp(in_file.data(), in_memory.data(), size) != 0)
      return false;
  }
  return true;
}

}  // namespace

void name_moved_text(pid_t pid, pid_t parent, std::vector<ProcMap>& maps) {
  for (std::size_t first = 1; first < maps.size(); ++first) {
    if (!is_unnamed_code(maps[first])) continue;
    std::size_t behind = first;
    while (behind < maps.size() && is_unnamed_code(maps[behind]) && maps[behind].begin == maps[behind - 1].end)
      ++behind;
    const ProcMap before = maps[first - 1];
    if (behind == first || behind == maps.size() || maps[behind].begin != maps[behind - 1].end ||
        !is_one_file(before, maps[behind]))
      continue;
    const Descriptor file = open_mapped(pid, parent, before);
    const MemoryFile memory(pid);
    for (ProcMap& map : std::span(maps).subspan(first, is_elf(file) ? behind - first : 0)) {
      ProcMap named = map;
      named.offset = before.offset + (map.begin - before.begin);
      named.file = before.file;
      named.path = before.path;
      named.deleted = before.deleted;
      if (is_content(named, file, memory)) map = std::move(named);
    }
    first = behind;
  }
}

}  // namespace windlass::os
