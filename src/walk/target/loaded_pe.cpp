#include "walk/target/loaded_pe.h"
#include "base/pages.h"

#include <cstddef>

namespace windlass::walk {
namespace {

bool has_code(std::span<const os::ProcMap> maps, std::size_t first, std::uint64_t end) {
  for (std::size_t i = first; i < maps.size() && maps[i].begin < end; ++i)
    if (maps[i].executable) return true;
  return false;
}

}  // namespace

std::vector<LoadedPe> find_loaded_pe(std::span<const os::ProcMap> maps, ReadMemory read) {
  std::vector<LoadedPe> found;
  std::vector<std::byte> page(kSmallestPage);
  for (std::size_t i = 0; i < maps.size(); ++i) {
    const os::ProcMap& map = maps[i];
    if (map.offset != 0 || !map.readable || !map.has_file() || (!found.empty() && map.begin < found.back().end))
      continue;
    std::uint16_t magic = 0;
    if (!read(map.begin, &magic, sizeof magic) || magic != 0x5a4d || !read(map.begin, page.data(), page.size()))
      continue;
    // Parses the headers alone. The directories behind them are missing, but are not needed here.
    const auto image = image::PeImage::parse(ByteView(page.data(), page.size()), image::PeLayout::kMapped);
    if (!image) continue;
    const std::uint64_t size = (image->image_size() + kSmallestPage - 1) / kSmallestPage * kSmallestPage;
    if (size == 0 || map.begin + size < map.begin || !has_code(maps, i, map.begin + size)) continue;
    found.push_back({map.begin, map.begin + size, image->machine(), image->timestamp(), i});
  }
  return found;
}

}  // namespace windlass::walk
