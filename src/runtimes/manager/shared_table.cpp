#include "runtimes/manager/shared_table.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include <fmt/format.h>

#include "os/descriptor.h"
#include "os/living_thread.h"
#include "os/mapped_files.h"
#include "runtimes/manager/source.h"
#include "windlass_code_layout.h"

namespace windlass::manager {
namespace {

constexpr std::string_view kPath = "/memfd:" WL_CODE_NAME;

// For who may not open /proc/PID/map_files: a descriptor that the process has of the same file.
os::Descriptor open_by_descriptor(pid_t pid, std::uint64_t inode) {
  const std::string folder = fmt::format("/proc/{}/fd", os::living_thread(pid));
  DIR* entries = ::opendir(folder.c_str());
  os::Descriptor found;
  while (entries != nullptr && !found) {
    const dirent* entry = ::readdir(entries);
    if (entry == nullptr) break;
    const std::string link = fmt::format("{}/{}", folder, entry->d_name);
    char path[64];
    const ssize_t size = ::readlink(link.c_str(), path, sizeof path);
    if (size <= 0 || !std::string_view(path, static_cast<std::size_t>(size)).starts_with(kPath)) continue;
    os::OpenedRegular opened = os::open_regular(os::FileCandidate{.path = link});
    if (opened.file && opened.status.st_ino == inode) found = std::move(opened.file);
  }
  if (entries != nullptr) ::closedir(entries);
  return found;
}

}  // namespace

bool shows_table(const os::ProcMap& map) { return map.path == kPath && map.offset == 0 && !map.executable; }

Expected<std::shared_ptr<SharedTable>> SharedTable::open(pid_t pid, const os::ProcMap& map) {
  os::Descriptor file(os::open_regular(os::files_of(pid, 0, map).front().path));
  if (!file) file = open_by_descriptor(pid, map.file.inode);
  if (!file)
    return fail(ErrorCode::kSystem, "code manager's memfd cannot be opened", map.begin,
                static_cast<std::uint64_t>(errno));
  auto mapped = MappedTable::open(file.get());
  if (!mapped) return Failure(mapped.error());
  const CodeManagerReader reader = (*mapped)->reader();
  return std::make_shared<SharedTable>(std::move(*mapped), reader, map.begin, map.file);
}

Expected<std::shared_ptr<SharedTable>> SharedTable::open(const Memory& memory, std::uint64_t address) {
  auto reader = CodeManagerReader::open(memory, address);
  if (!reader) return Failure(reader.error());
  return std::make_shared<SharedTable>(nullptr, *reader, address, os::FileIdentity());
}

std::uint64_t SharedTable::functions_at(std::uint64_t address, std::uint64_t /*function*/, std::uint64_t time,
                                        std::vector<sources::NamedFunction>& to) {
  return add_function_at(time == kTimeSet ? reader_ : reader_.as_of(time), address, to);
}

std::unique_ptr<sources::UnwindSource> SharedTable::make_source() {
  return manager::make_source(shared_from_this(), reader_);
}

}  // namespace windlass::manager
