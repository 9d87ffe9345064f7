#include "profiler/annotate/source_text.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "os/descriptor.h"

namespace windlass::annotate {

namespace {

// A profile may be a stranger's, and name any file of the user.
bool is_named_like_source(const std::string& path) {
  static constexpr std::string_view kEndings[] = {
      ".S",     ".asm", ".c",    ".c++",  ".cc",  ".cjs",  ".clj", ".cpp", ".cr",  ".cs",   ".cts",   ".cu",
      ".cxx",   ".d",   ".dart", ".erl",  ".ex",  ".exs",  ".f",   ".f90", ".for", ".fs",   ".go",    ".h",
      ".h++",   ".hh",  ".hpp",  ".hs",   ".hxx", ".i",    ".inc", ".inl", ".ipp", ".java", ".jl",    ".js",
      ".jsx",   ".kt",  ".l",    ".lisp", ".ll",  ".lua",  ".m",   ".mjs", ".ml",  ".mm",   ".mts",   ".nim",
      ".pas",   ".php", ".pl",   ".pm",   ".py",  ".pyx",  ".r",   ".rb",  ".rs",  ".s",    ".scala", ".scm",
      ".swift", ".tcc", ".ts",   ".tsx",  ".v",   ".vala", ".vb",  ".x",   ".y",   ".zig"};
  const std::string ending = std::filesystem::path(path).extension().string();
  return ending.empty() ? path.find("/include/") != path.npos  // <vector>
                        : std::ranges::find(kEndings, ending) != std::end(kEndings);
}

bool read(const std::string& place, std::string& to) {
  const auto file = MappedFile::read(place, SourceText::kMostBytes);
  if (!file) return false;
  to.assign(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  return true;
}

}  // namespace

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
  if (!is_new || !is_named_like_source(path)) return file.lines;
  const auto places = places_of(path);
  const bool is_here = std::ranges::any_of(places, [&](const std::string& place) { return read(place, file.text); });
  if (!is_here && ask_) {
    const os::Descriptor found(ask_(path));
    if (found.get() >= 0) (void)read(fmt::format("/proc/self/fd/{}", found.get()), file.text);
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
