#include "runtimes/find.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>

#include <sys/stat.h>

#include "process/mapped_files.h"
#include "runtimes/coreclr/find.h"
#include "runtimes/hotspot/find.h"
#include "runtimes/memory_reader.h"
#include "runtimes/runtime_code.h"
#include "runtimes/v8/find.h"

namespace windlass::runtimes {
namespace {

// The kinds of runtimes: how each is found in an image, and opened.
struct Kind {
  Expected<std::uint64_t> (*find)(const Memory& memory, std::uint64_t base);
  std::unique_ptr<Runtime> (*open)(std::shared_ptr<const Memory> memory, std::uint64_t at,
                                   FunctionRef<Expected<image::MappedFile>()> file);
};
template <auto open>
std::unique_ptr<Runtime> by_memory(std::shared_ptr<const Memory> memory, std::uint64_t at,
                                   FunctionRef<Expected<image::MappedFile>()> /*file*/) {
  return open(std::move(memory), at);
}
template <auto open>
std::unique_ptr<Runtime> by_file(std::shared_ptr<const Memory> memory, std::uint64_t at,
                                 FunctionRef<Expected<image::MappedFile>()> file) {
  return open(std::move(memory), at, file());
}
constexpr Kind kKinds[] = {{coreclr::find_descriptor, by_memory<coreclr::open>},
                           {hotspot::find_tables, by_memory<hotspot::open>},
                           {v8::find_metadata, by_file<v8::open>}};

// Code without a file, or of a file that has no name (memfd_create): where JIT compilers write theirs.
bool may_be_generated(const process::ProcMap& map) {
  return map.executable && (!map.has_file() || map.deleted) && map.path != "[vdso]" && map.path != "[vsyscall]";
}

bool has_header(const process::ProcMap& map) {
  return map.has_file() && map.offset == 0 && map.readable && !map.path.starts_with("/memfd:");
}

// Inodes are given to other files again.
using FileId = std::tuple<std::string, std::uint64_t, std::uint32_t, std::uint32_t>;
FileId id_of(const process::ProcMap& map) { return {map.path, map.file.inode, map.file.major, map.file.minor}; }

// Files that have been seen to hold no runtime, so that processes which make code all the time are not searched all the
// time.
class OtherFiles {
 public:
  bool has(const process::ProcMap& map) {
    const std::lock_guard hold(lock_);
    return files_.contains(id_of(map));
  }
  void add(const process::ProcMap& map) {
    constexpr std::size_t kMost = 65536;
    const std::lock_guard hold(lock_);
    if (files_.size() >= kMost) files_.clear();
    files_.insert(id_of(map));
  }

 private:
  std::mutex lock_;
  std::set<FileId> files_;
};
OtherFiles& other_files() {
  static OtherFiles files;
  return files;
}

// The runtimes in the image that begins with a mapping.
void add_runtimes_of(manager::PublishedCodes& codes, const process::ProcMap& map,
                     const std::shared_ptr<const Memory>& memory, OpenFile open_file) {
  const auto file = [&] { return open_file(map); };
  const bool can_be_kept = map.file.inode != 0;
  if (can_be_kept && other_files().has(map)) return;
  bool any = false;
  for (const Kind& kind : kKinds)
    if (const auto at = kind.find(*memory, map.begin)) {
      manager::add(codes, std::make_shared<RuntimeCode>(kind.open(memory, *at, file), map));
      any = true;
    }
  if (!any && can_be_kept && read_value<std::uint64_t>(*memory, map.begin)) other_files().add(map);
}

}  // namespace

void add_runtimes(manager::PublishedCodes& codes, std::span<const process::ProcMap> maps, OpenMemory open_memory,
                  OpenFile open_file, const manager::PublishedCodes& known) {
  if (!std::ranges::any_of(maps, may_be_generated)) return;
  const std::shared_ptr<const Memory> memory = open_memory();
  std::map<FileId, bool> executable;
  for (const process::ProcMap& map : maps)
    if (map.has_file()) executable[id_of(map)] |= map.executable;
  for (const process::ProcMap& map : maps) {
    if (!has_header(map) || !executable[id_of(map)] || manager::shows_published(map)) continue;
    const auto same = std::ranges::find_if(known, [&](const auto& code) { return code->is_of(map); });
    if (same != known.end()) {
      manager::add(codes, *same);
      continue;
    }
    add_runtimes_of(codes, map, memory, open_file);
  }
  for (const process::ProcMap& map : maps)
    for (const auto& code : codes) {
      if (may_be_generated(map)) code->note_code(map);
      if (map.executable && map.has_file() && code->is_in_file_of(map)) code->note_file_code(map);
    }
}

Expected<image::MappedFile> open_mapped_file(pid_t pid, pid_t parent, const process::ProcMap& map) {
  for (const process::FileCandidate& candidate : process::files_of(pid, parent, map)) {
    struct stat status {};
    const bool same = candidate.certain || (candidate.inode != 0 && ::stat(candidate.path.c_str(), &status) == 0 &&
                                            status.st_ino == candidate.inode);
    if (!same) continue;
    if (auto file = image::MappedFile::open(candidate.path)) return file;
  }
  return fail(ErrorCode::kNotFound, "the runtime's file cannot be opened", map.begin);
}

}  // namespace windlass::runtimes
