#include "walk/target/link_map.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>

#include <elf.h>

#include "base/pages.h"
#include "formats/image/elf_structures.h"
#include "walk/target/memory_image.h"

namespace windlass::walk {
namespace {

class LinkMap {
 public:
  LinkMap(const image::CoreFile& core, const Memory& memory)
      : core_(core), memory_(memory), word_(image::class_of(core.machine) == image::ElfClass::k32 ? 4 : 8) {}

  std::vector<os::ProcMap> maps() {
    const std::uint64_t headers_at = core_.auxiliary_value(AT_PHDR).value_or(0);
    const std::uint64_t program = headers_at & ~(kSmallestPage - 1);
    const auto headers = read_loaded_headers(memory_, program);
    if (headers_at == 0 || !headers) return {};
    add(*headers, program_path());
    add_linker();
    if (const auto first = first_entry(*headers)) add_list(*first);
    std::vector<os::ProcMap> maps;
    for (auto& [begin, map] : maps_) maps.push_back(std::move(map));
    return maps;
  }

 private:
  static constexpr int kMostEntries = 4096;
  static constexpr std::size_t kLongestPath = 4096;

  // 0 where it cannot be read.
  [[nodiscard]] std::uint64_t read_word(std::uint64_t address) const {
    std::uint64_t value = 0;
    return memory_.read(address, &value, word_) ? value : 0;
  }

  // Empty where it cannot be read, or does not end.
  [[nodiscard]] std::string read_text(std::uint64_t address) const {
    std::string text;
    char c = 0;
    while (address != 0 && text.size() < kLongestPath && memory_.read(address + text.size(), &c, 1)) {
      if (c == '\0') return text;
      text += c;
    }
    return {};
  }

  [[nodiscard]] std::string program_path() const {
    std::string path = read_text(core_.auxiliary_value(AT_EXECFN).value_or(0));
    if (path.starts_with('/')) return path;
    return '/' + (path.empty() ? core_.name : path);
  }

  // The linker is in its own list, too, unless it has not come so far.
  void add_linker() {
    const std::uint64_t base = core_.auxiliary_value(AT_BASE).value_or(0);
    if (base == 0) return;
    const auto headers = read_loaded_headers(memory_, base);
    if (headers) add(*headers, interpreter_);
  }

  // r_debug::r_map (<link.h>): behind an int, aligned.
  [[nodiscard]] std::optional<std::uint64_t> first_entry(const LoadedHeaders& program) const {
    for (const image::Segment& segment : program.segments) {
      if (segment.type != PT_DYNAMIC) continue;
      const std::uint64_t begin = segment.vaddr + program.bias;
      for (std::uint64_t i = 0; i < std::min<std::uint64_t>(segment.filesz / (2 * word_), kMostEntries); ++i) {
        const std::uint64_t tag = read_word(begin + i * 2 * word_);
        if (tag == DT_NULL) break;
        if (tag != DT_DEBUG) continue;
        const std::uint64_t debug = read_word(begin + i * 2 * word_ + word_);
        if (debug != 0) return read_word(debug + word_);
      }
    }
    return std::nullopt;
  }

  // link_map: l_addr, l_name, l_ld, l_next. The first one is the program.
  void add_list(std::uint64_t first) {
    std::uint64_t entry = read_word(first + 3 * word_);
    for (int i = 0; entry != 0 && i < kMostEntries; ++i, entry = read_word(entry + 3 * word_)) {
      const std::string path = read_text(read_word(entry + word_));
      const std::uint64_t base = read_word(entry);
      if (!path.starts_with('/')) continue;  // the vdso
      if (const auto headers = read_loaded_headers(memory_, base)) add(*headers, path);
    }
  }

  void add(const LoadedHeaders& headers, const std::string& path) {
    for (const image::Segment& segment : headers.segments) {
      if (segment.type == PT_INTERP && interpreter_.empty()) interpreter_ = read_text(segment.vaddr + headers.bias);
      if (segment.type != PT_LOAD || segment.filesz == 0) continue;
      const std::uint64_t slack = segment.offset & (kSmallestPage - 1), begin = segment.vaddr + headers.bias - slack;
      const std::uint64_t size = (slack + segment.filesz + kSmallestPage - 1) & ~(kSmallestPage - 1);
      if (segment.filesz > ~std::uint64_t{0} - 2 * kSmallestPage || begin > ~std::uint64_t{0} - size) continue;
      os::ProcMap map;
      map.begin = begin;
      map.end = begin + size;
      map.offset = segment.offset - slack;
      map.path = path;
      map.readable = true;
      map.executable = (segment.flags & PF_X) != 0;
      const auto behind = maps_.lower_bound(map.begin);
      const bool overlaps = (behind != maps_.end() && behind->first < map.end) ||
                            (behind != maps_.begin() && std::prev(behind)->second.end > map.begin);
      if (!overlaps) maps_.emplace_hint(behind, begin, std::move(map));
    }
  }

  const image::CoreFile& core_;
  const Memory& memory_;
  std::uint64_t word_;
  std::string interpreter_;
  std::map<std::uint64_t, os::ProcMap> maps_;  // by begin
};

}  // namespace

std::vector<os::ProcMap> maps_of_link_map(const image::CoreFile& core, const Memory& memory) {
  return LinkMap(core, memory).maps();
}

}  // namespace windlass::walk
