#include "windlass/target.h"

#include <algorithm>
#include <charconv>

#include "image/mapped_file.h"

namespace windlass {

Expected<Target> open_target(const std::string& what, const DumpOptions& dump, const ProcessOptions& process) {
  if (!what.empty() && std::all_of(what.begin(), what.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    std::uint64_t pid = 0;
    if (std::from_chars(what.data(), what.data() + what.size(), pid).ec == std::errc{})
      return open_process(pid, process);
  }
  const auto file = image::MappedFile::open(what);
  if (!file) return std::unexpected(file.error());
  const auto magic = file->bytes().at<std::uint32_t>(0);
  constexpr std::uint32_t kElf = 0x464c457f;       // "\177ELF"
  constexpr std::uint32_t kMinidump = 0x504d444d;  // "MDMP"
  if (magic && *magic == kElf) return open_core(what, dump);
  if (magic && *magic == kMinidump) return open_minidump(what, dump);
  return fail(ErrorCode::kUnsupported, "neither a core file nor a minidump", 0, magic ? *magic : 0);
}

}  // namespace windlass
