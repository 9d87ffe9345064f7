#include "windlass/target.h"

#include <algorithm>
#include <charconv>

#include "walk/target/dump_file.h"

namespace windlass {

Expected<Target> open_target(const std::string& what, const DumpOptions& dump, const ProcessOptions& process) {
  if (!what.empty() && std::all_of(what.begin(), what.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    std::uint64_t pid = 0;
    if (std::from_chars(what.data(), what.data() + what.size(), pid).ec == std::errc{})
      return open_process(pid, process);
  }
  auto file = walk::open_dump_file(what);
  if (!file) return Failure(file.error());
  switch (walk::dump_kind_of(file->bytes())) {
    case walk::DumpKind::kCore: return walk::read_core(std::move(*file), dump);
    case walk::DumpKind::kMinidump: return walk::read_minidump(std::move(*file), dump);
    case walk::DumpKind::kOther: break;
  }
  const auto magic = file->bytes().at<std::uint32_t>(0);
  return fail(ErrorCode::kUnsupported, "neither a core file nor a minidump", 0, magic ? *magic : 0);
}

}  // namespace windlass
