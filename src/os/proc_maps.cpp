#include "os/proc_maps.h"

#include <charconv>
#include <utility>

namespace windlass::os {
namespace {

constexpr std::string_view kDeleted = " (deleted)";

template <typename T>
bool take_number(std::string_view& text, T& value, int base, char terminator) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end == text.data() + text.size() || *end != terminator) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return true;
}

// "\012" is how the kernel writes a newline in a path.
std::string unescape(std::string_view text) {
  std::string path;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 4) == "\\012") {
      path += '\n';
      i += 3;
    } else {
      path += text[i];
    }
  }
  return path;
}

// begin-end perms offset major:minor inode   path
bool parse_line(std::string_view line, ProcMap& map) {
  if (!take_number(line, map.begin, 16, '-') || !take_number(line, map.end, 16, ' ') || map.end <= map.begin)
    return false;
  if (line.size() < 5) return false;
  map.readable = line[0] == 'r';
  map.executable = line[2] == 'x';
  line.remove_prefix(5);
  if (!take_number(line, map.offset, 16, ' ') || !take_number(line, map.file.major, 16, ':') ||
      !take_number(line, map.file.minor, 16, ' '))
    return false;
  const auto digits = line.find_first_not_of("0123456789");
  const auto inode = line.substr(0, digits);
  if (std::from_chars(inode.data(), inode.data() + inode.size(), map.file.inode).ec != std::errc{}) return false;
  line.remove_prefix(inode.size());
  const auto path = line.find_first_not_of(' ');
  if (path != std::string_view::npos) map.set_path(unescape(line.substr(path)));
  return true;
}

}  // namespace

// Not: "", "//anon" (perf), "[heap]", "[anon:...]", "anon_inode:...", "/dev/zero", "/SYSV...". A memfd may hold code
// that was loaded from it.
bool ProcMap::has_file() const {
  return path.starts_with('/') && !path.starts_with("//") && !path.starts_with("/dev/") && !path.starts_with("/SYSV");
}

void ProcMap::set_path(std::string from_kernel) {
  path = std::move(from_kernel);
  deleted = path.ends_with(kDeleted);
  if (deleted) path.resize(path.size() - kDeleted.size());
}

std::vector<ProcMap> parse_proc_maps(std::string_view text) {
  std::vector<ProcMap> maps;
  while (!text.empty()) {
    const auto newline = text.find('\n');
    ProcMap map;
    if (parse_line(text.substr(0, newline), map)) maps.push_back(std::move(map));
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
  }
  return maps;
}

}  // namespace windlass::os
