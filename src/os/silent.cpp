#include "os/silent.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

#include "os/proc_file.h"

namespace windlass::os {
namespace {

std::string printable(std::string_view text) {
  std::string out(text);
  std::ranges::replace_if(
      out, [](char c) { return c < '!' || c > '~'; }, '?');
  return out;
}

// Cuts the next field off.
std::string_view take_field(std::string_view& line) {
  const std::string_view field = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(field.size() + 1, line.size()));
  return field;
}

// A line of /proc/PID/mountinfo (proc(5)): number, parent, device, root, mount point, options, "-", type.
struct Mount {
  std::string_view device, point, type;
};

// False: there is no other one.
bool take_mount(std::string_view& mounts, Mount& mount) {
  while (!mounts.empty()) {
    std::string_view line = mounts.substr(0, mounts.find('\n'));
    mounts.remove_prefix(std::min(line.size() + 1, mounts.size()));
    const std::size_t type_at = line.find(" - ");
    if (type_at == std::string_view::npos) continue;
    mount.type = line.substr(type_at + 3);
    mount.type = mount.type.substr(0, mount.type.find(' '));
    (void)take_field(line);
    (void)take_field(line);
    mount.device = take_field(line);
    (void)take_field(line);
    mount.point = take_field(line);
    return true;
  }
  return false;
}

// The kernel writes blanks, line ends and backslashes of a name as three octal digits.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    int number = 0;
    const bool escape =
        text[at] == '\\' && at + 3 < text.size() &&
        std::from_chars(text.data() + at + 1, text.data() + at + 4, number, 8).ptr == text.data() + at + 4;
    out += escape ? static_cast<char>(number) : text[at];
    if (escape) at += 3;
  }
  return out;
}

// "0:57"
std::string describe_device(std::string_view device) {
  const std::string mounts = read_proc_file("/proc/self/mountinfo");
  Mount mount;
  for (std::string_view rest = mounts; take_mount(rest, mount);)
    if (mount.device == device)
      return fmt::format("the file system at {} ({})", printable(mount.point),
                         printable(mount.type.substr(0, mount.type.find('.'))));
  return fmt::format("the file system of device {}", printable(device));
}

}  // namespace

std::string describe_silent(const std::string& subject) {
  constexpr std::string_view kDevice = "device ", kProc = "/proc/";
  const std::string_view text = subject;
  if (text.starts_with(kDevice)) return describe_device(text.substr(kDevice.size()));
  if (!text.starts_with(kProc)) return fmt::format("the file {}", printable(text));
  const std::size_t slash = std::min(text.find('/', kProc.size()), text.size());
  const std::string process = printable(text.substr(kProc.size(), slash - kProc.size()));
  const std::string_view name = text.substr(std::min(slash + 1, text.size()));
  const char* const what = name == "mem" ? "memory" : name == "maps" ? "the list of mappings" : "a file";
  return fmt::format("{} of process {}", what, process);
}

// Of two mounts at one place the later one hides the other.
ServerMounts::ServerMounts(std::string_view mounts) {
  constexpr std::string_view kOfNoServer[] = {"btrfs", "overlay", "tmpfs", "ramfs", "zfs", "bcachefs", "hugetlbfs"};
  Mount mount;
  while (take_mount(mounts, mount)) {
    const bool server =
        mount.device.starts_with("0:") && std::ranges::find(kOfNoServer, mount.type) == std::end(kOfNoServer);
    servers_[unescaped(mount.point)] = server ? fmt::format("device {}", mount.device) : std::string();
  }
}

std::string ServerMounts::server_of(std::string_view path) const {
  while (!path.empty()) {
    const std::size_t slash = path.rfind('/');
    if (slash == std::string_view::npos) break;
    path = path.substr(0, slash);
    const auto mount = servers_.find(path.empty() ? std::string_view("/") : path);
    if (mount != servers_.end()) return mount->second;
  }
  return {};
}

}  // namespace windlass::os
