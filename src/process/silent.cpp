#include "process/silent.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "process/proc_file.h"

namespace windlass::process {
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

// "0:57", by a line of /proc/PID/mountinfo (proc(5)): number, parent, device, root, mount point, options, "-", type.
std::string describe_device(std::string_view device) {
  const std::string mounts = read_proc_file("/proc/self/mountinfo");
  for (std::string_view rest = mounts; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const std::size_t type_at = line.find(" - ");
    if (type_at == std::string_view::npos) continue;
    std::string_view type = line.substr(type_at + 3);
    (void)take_field(line);
    (void)take_field(line);
    if (take_field(line) != device) continue;
    (void)take_field(line);
    type = type.substr(0, type.find_first_of(". "));
    return fmt::format("the file system at {} ({})", printable(take_field(line)), printable(type));
  }
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

}  // namespace windlass::process
