#include "profiler/annotate/source_text.h"

#include <filesystem>

#include "base/mapped_file.h"

namespace windlass::annotate {

std::vector<std::string> SourceText::places_of(const std::string& path) const {
  const std::string normal = std::filesystem::path(path).lexically_normal().string();  // "/a/b" of "/a/c/../b"
  std::vector<std::string> places;
  for (const auto& [from, to] : moves_) {
    if (!normal.starts_with(from)) continue;
    places.push_back(to + normal.substr(from.size()));
    break;
  }
  places.push_back(normal);
  return places;
}

const std::vector<std::string_view>& SourceText::lines_of(const std::string& path) {
  const auto [entry, is_new] = files_.try_emplace(path);
  File& file = entry->second;
  if (!is_new || path.empty()) return file.lines;
  for (const std::string& place : places_of(path)) {
    const auto bytes = MappedFile::read(place, kMostBytes);
    if (!bytes) continue;
    file.text.assign(reinterpret_cast<const char*>(bytes->bytes().data()), bytes->bytes().size());
    break;
  }
  for (std::string_view rest = file.text; !rest.empty();) {
    const std::size_t end = rest.find('\n');
    file.lines.push_back(rest.substr(0, end));
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
  }
  return file.lines;
}

std::string_view SourceText::line(const std::string& path, std::uint32_t number) {
  const auto& lines = lines_of(path);
  return number >= 1 && number <= lines.size() ? lines[number - 1] : std::string_view{};
}

}  // namespace windlass::annotate
