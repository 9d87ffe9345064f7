#include "runtimes/find.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "runtimes/coreclr/find.h"
#include "runtimes/runtime_code.h"

namespace windlass::runtimes {
namespace {

// The kinds of runtimes: how each is found in an image, and opened.
struct Kind {
  Expected<std::uint64_t> (*find)(const Memory& memory, std::uint64_t base);
  std::unique_ptr<Runtime> (*open)(std::shared_ptr<const Memory> memory, std::uint64_t at);
};
constexpr Kind kKinds[] = {{coreclr::find_descriptor, coreclr::open}};

// Code without a file, or of a file that has no name (memfd_create): where JIT compilers write theirs.
bool may_be_generated(const process::ProcMap& map) {
  return map.executable && (!map.has_file() || map.deleted) && map.path != "[vdso]" && map.path != "[vsyscall]";
}

bool has_header(const process::ProcMap& map) {
  return map.has_file() && map.offset == 0 && map.readable && !map.path.starts_with("/memfd:");
}

}  // namespace

void add_runtimes(manager::PublishedCodes& codes, std::span<const process::ProcMap> maps, OpenMemory open_memory,
                  const manager::PublishedCodes& known) {
  if (!std::ranges::any_of(maps, may_be_generated)) return;
  const std::shared_ptr<const Memory> memory = open_memory();
  const auto id_of = [](const process::ProcMap& map) {
    return std::tuple(map.path, map.file.inode, map.file.major, map.file.minor);
  };
  std::map<decltype(id_of(maps.front())), bool> executable;
  for (const process::ProcMap& map : maps)
    if (map.has_file()) executable[id_of(map)] |= map.executable;
  for (const process::ProcMap& map : maps) {
    if (!has_header(map) || !executable[id_of(map)] || manager::shows_published(map)) continue;
    const auto same = std::ranges::find_if(known, [&](const auto& code) { return code->is_of(map); });
    if (same != known.end()) {
      manager::add(codes, *same);
      continue;
    }
    for (const Kind& kind : kKinds)
      if (const auto at = kind.find(*memory, map.begin))
        manager::add(codes, std::make_shared<RuntimeCode>(kind.open(memory, *at), map));
  }
  for (const process::ProcMap& map : maps)
    if (may_be_generated(map))
      for (const auto& code : codes) code->note_code(map);
}

}  // namespace windlass::runtimes
