#include "runtimes/published_code.h"

#include <utility>

#include "os/jitdump.h"
#include "runtimes/jitdump_code.h"
#include "runtimes/manager/shared_table.h"

namespace windlass::manager {

void add(PublishedCodes& codes, std::shared_ptr<PublishedCode> code) {
  const auto at = std::ranges::upper_bound(codes, code->rank(), {}, [](const auto& other) { return other->rank(); });
  codes.insert(at, std::move(code));
}

bool shows_published(const os::ProcMap& map) { return shows_table(map) || os::shows_jitdump(map); }

Expected<std::shared_ptr<PublishedCode>> open_published(pid_t pid, pid_t parent, const os::ProcMap& map) {
  if (shows_table(map)) return SharedTable::open(pid, map);
  return JitdumpCode::open(pid, parent, map);
}

PublishedCodes open_published(pid_t pid, std::span<const os::ProcMap> maps, const Memory& memory) {
  PublishedCodes codes;
  for (const os::ProcMap& map : maps) {
    if (!shows_published(map)) continue;
    auto code = open_published(pid, 0, map);
    if (!code && shows_table(map)) code = SharedTable::open(memory, map.begin);
    if (code) add(codes, std::move(*code));
  }
  return codes;
}

PublishedCodes open_published(std::span<const os::ProcMap> maps, const Memory& memory) {
  PublishedCodes codes;
  for (const os::ProcMap& map : maps) {
    if (!shows_table(map)) continue;
    if (auto table = SharedTable::open(memory, map.begin)) add(codes, std::move(*table));
  }
  return codes;
}

}  // namespace windlass::manager
