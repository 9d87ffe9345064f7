#include "profiler/processes/cgroup_tree.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "os/descriptor.h"

namespace windlass::profiler {
namespace {

namespace fs = std::filesystem;

// A blank, a tab, a newline and a backslash are "\040" and so on (proc(5)).
std::string unescape_mount(std::string_view text) {
  std::string plain;
  const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && std::ranges::all_of(text.substr(i + 1, 3), is_octal)) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    words.push_back(line.substr(0, line.find(' ')));
    line.remove_prefix(std::min(words.back().size() + 1, line.size()));
  }
  return words;
}

}  // namespace

std::string find_cgroup_mount(std::string_view mountinfo) {
  std::string part;
  while (!mountinfo.empty()) {
    const std::string_view line = mountinfo.substr(0, mountinfo.find('\n'));
    mountinfo.remove_prefix(std::min(line.size() + 1, mountinfo.size()));
    const auto words = words_of(line);
    // "36 35 98:0 ROOT MOUNT OPTIONS OPTIONAL... - TYPE SOURCE OPTIONS"
    if (words.size() < 8) continue;
    const auto dash = std::find(words.begin() + 6, words.end() - 1, "-");
    if (dash == words.end() - 1 || dash[1] != "cgroup2") continue;
    if (words[3] == "/") return unescape_mount(words[4]);
    if (part.empty()) part = unescape_mount(words[4]);
  }
  return part;
}

std::expected<std::uint64_t, int> cgroup_id(const std::string& folder) {
  const os::Descriptor group(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK));
  if (!group) return std::unexpected(errno);
  struct statfs system {};
  if (::fstatfs(group.get(), &system) != 0) return std::unexpected(errno);
  if (system.f_type != CGROUP2_SUPER_MAGIC) return std::unexpected(EXDEV);
  // The handle of a folder of kernfs is its number (fs/kernfs/mount.c); the inode's is that only since Linux 5.5.
  std::uint64_t id = 0;
  alignas(file_handle) std::array<char, sizeof(file_handle) + sizeof id> bytes{};
  auto* handle = reinterpret_cast<file_handle*>(bytes.data());
  handle->handle_bytes = sizeof id;
  int mount = 0;
  if (::name_to_handle_at(group.get(), "", handle, &mount, AT_EMPTY_PATH) != 0) return std::unexpected(errno);
  std::memcpy(&id, handle->f_handle, sizeof id);
  return id;
}

void visit_groups(const std::string& mount, const std::function<bool(const std::string& path)>& visit) {
  std::error_code error;
  auto at = fs::recursive_directory_iterator(mount, fs::directory_options::skip_permission_denied, error);
  std::size_t left = kMostGroups;
  for (; !error && at != fs::recursive_directory_iterator() && left > 0; at.increment(error)) {
    std::error_code gone;
    if (!at->is_directory(gone) || at->is_symlink(gone)) continue;
    --left;
    if (!visit(at->path().string().substr(mount.size()))) at.disable_recursion_pending();
  }
}

}  // namespace windlass::profiler
