#include "runtimes/find.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/ascii_case.h"
#include "os/mapped_files.h"
#include "runtimes/dynamic_symbol.h"
#include "runtimes/kinds.h"
#include "runtimes/memory_reader.h"
#include "runtimes/pe_export.h"
#include "runtimes/runtime_code.h"

namespace windlass::runtimes {
namespace {

// Code without a file, or of a file that has no name (memfd_create): where JIT compilers write theirs.
bool may_be_generated(const os::ProcMap& map) {
  return map.executable && (!map.has_file() || map.deleted) && map.path != "[vdso]" && map.path != "[vsyscall]";
}

bool has_header(const os::ProcMap& map) {
  return map.has_file() && map.offset == 0 && map.readable && !map.path.starts_with("/memfd:");
}

// Wine maps the headers of a program alone, and copies its code, where the sections of the file do not begin with
// pages.
bool may_be_copied_image(const os::ProcMap& map) {
  const auto ends_with = [&](std::string_view end) { return ends_with_without_case(map.path, end); };
  return ends_with(".exe") || ends_with(".dll") || ends_with(".node");
}

// Inodes are given to other files again.
using FileId = std::tuple<std::string, std::uint64_t, std::uint32_t, std::uint32_t>;
FileId id_of(const os::ProcMap& map) { return {map.path, map.file.inode, map.file.major, map.file.minor}; }

// Files that have been seen to hold none, so that processes which change all the time are not searched all the time.
class OtherFiles {
 public:
  bool has(const os::ProcMap& map) {
    const std::lock_guard hold(lock_);
    return files_.contains(id_of(map));
  }
  void add(const os::ProcMap& map) {
    constexpr std::size_t kMost = 65536;
    const std::lock_guard hold(lock_);
    if (files_.size() >= kMost) files_.clear();
    files_.insert(id_of(map));
  }

 private:
  std::mutex lock_;
  std::set<FileId> files_;
};
OtherFiles& without_runtime() {
  static OtherFiles files;
  return files;
}
OtherFiles& without_interpreter() {
  static OtherFiles files;
  return files;
}

// The runtime in the image that begins with a mapping, the first kind of those that it may be. How many.
std::size_t add_runtimes_of(manager::PublishedCodes& codes, const os::ProcMap& map, const OpenedMemory& memory,
                            OpenFile open_file) {
  const auto file = [&] { return open_file(map); };
  for (const Kind& kind : kinds())
    if (const auto at = kind.find(*memory.memory, map.begin))
      if (auto runtime = kind.open(memory.memory, *at, file)) {
        manager::add(codes, std::make_shared<RuntimeCode>(std::move(runtime), memory.memory, map, memory.timed));
        return 1;
      }
  return 0;
}

std::size_t add_interpreters_of(manager::Interpreters& to, const os::ProcMap& map, const Memory& memory) {
  std::size_t found = 0;
  for (const InterpreterKind& kind : interpreter_kinds())
    if (kind.find(memory, map.begin)) {
      to.push_back(std::make_shared<manager::FoundInterpreter>(kind.open(memory, map.begin), map));
      ++found;
    }
  return found;
}

// Looks in all images with code, but for files in `without`. What is in `known` by its place stays: keep() has it. For
// other images add_of() looks, and returns the number of finds.
using AddOf = FunctionRef<std::size_t(const os::ProcMap& map, const OpenedMemory& memory)>;
template <typename Known, typename Keep>
void look_in_images(std::span<const os::ProcMap> maps, OpenMemory open_memory, OtherFiles& without, const Known& known,
                    const Keep& keep, AddOf add_of) {
  std::optional<OpenedMemory> memory;
  std::vector<const os::ProcMap*> others;
  std::map<FileId, bool> executable;
  for (const os::ProcMap& map : maps)
    if (map.has_file()) executable[id_of(map)] |= map.executable;
  for (const os::ProcMap& map : maps) {
    if (!has_header(map) || manager::shows_published(map)) continue;
    if (!executable[id_of(map)] && !may_be_copied_image(map)) continue;
    const auto same = std::ranges::find_if(known, [&](const auto& one) { return one->is_of(map); });
    if (same != known.end()) {
      keep(*same);
      continue;
    }
    const bool can_be_kept = map.file.inode != 0;
    if (can_be_kept && without.has(map)) continue;
    if (!memory) memory = open_memory();
    if (add_of(map, *memory) == 0 && can_be_kept) others.push_back(&map);
  }
  if (others.empty()) return;
  // A process that ends during the look yields nothing about its files, and cached pages may have hidden the end. Nor
  // does an image that is still being loaded. So only loaded files that can still be read now are noted as without.
  const std::shared_ptr<const Memory> now = open_memory().memory;
  for (const os::ProcMap* map : others)
    if (read_value<std::uint64_t>(*now, map->begin) && is_loaded(*now, maps, *map) && is_pe_loaded(*now, map->begin))
      without.add(*map);
}

}  // namespace

void add_runtimes(manager::PublishedCodes& codes, std::span<const os::ProcMap> maps, OpenMemory open_memory,
                  OpenFile open_file, const manager::PublishedCodes& known) {
  if (!std::ranges::any_of(maps, may_be_generated)) return;
  const auto keep = [&](const auto& code) { manager::add(codes, code); };
  look_in_images(maps, open_memory, without_runtime(), known, keep,
                 [&](const auto& map, const auto& memory) { return add_runtimes_of(codes, map, memory, open_file); });
  for (const os::ProcMap& map : maps)
    for (const auto& code : codes) {
      if (may_be_generated(map)) code->note_code(map);
      if (map.executable && map.has_file() && code->is_in_file_of(map)) code->note_file_code(map);
    }
}

Expected<MappedFile> open_mapped_file(pid_t pid, pid_t parent, const os::ProcMap& map) {
  const os::Descriptor file = os::open_mapped(pid, parent, map);
  if (!file) return fail(ErrorCode::kNotFound, "the runtime's file cannot be opened", map.begin);
  return MappedFile::from_fd(file.get());
}

manager::Interpreters find_interpreters(std::span<const os::ProcMap> maps, OpenMemory open_memory,
                                        const manager::Interpreters& known) {
  manager::Interpreters found;
  const auto keep = [&](const auto& interpreter) { found.push_back(interpreter); };
  look_in_images(maps, open_memory, without_interpreter(), known, keep,
                 [&](const auto& map, const auto& memory) { return add_interpreters_of(found, map, *memory.memory); });
  return found;
}

bool has_interpreter(const Memory& image, std::uint64_t base) {
  return std::ranges::any_of(interpreter_kinds(),
                             [&](const InterpreterKind& kind) { return kind.find(image, base).has_value(); });
}

}  // namespace windlass::runtimes
