#include "walk/target/table_code.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "base/address_range.h"
#include "base/shown.h"
#include "runtimes/find.h"
#include "runtimes/runtime_code.h"
#include "runtimes/windows/find.h"
#include "runtimes/windows/tables.h"
#include "walk/inside.h"
#include "walk/module.h"

namespace windlass::walk {
namespace {

using runtimes::windows::Table;

// What the tables are asked for, ascending and disjoint, without what modules have.
std::vector<AddressRange> free_code(const Target& target, const std::vector<Table>& tables) {
  std::vector<AddressRange> ranges, free;
  for (const Table& table : tables)
    if (table.begin < table.end) ranges.push_back({table.begin, table.end});
  std::ranges::sort(ranges, {}, &AddressRange::begin);
  const std::vector<const ModuleInfo*> modules = target.space.modules();
  auto module = modules.begin();
  std::uint64_t from = 0;
  for (const AddressRange& range : ranges) {
    from = std::max(from, range.begin);
    while (from < range.end) {
      while (module != modules.end() && (*module)->end <= from) ++module;
      const std::uint64_t to = module != modules.end() ? std::clamp((*module)->begin, from, range.end) : range.end;
      if (from < to) free.push_back({from, to});
      from = std::max(to, module != modules.end() ? std::min((*module)->end, range.end) : range.end);
    }
  }
  return free;
}

std::string note_of(const Memory& memory, const Table& table) {
  const std::string library = runtimes::windows::library_of(memory, table);
  return fmt::format("a callback of the process makes the function table of code at 0x{:x}-0x{:x}{}", table.begin,
                     table.end, library.empty() ? "" : fmt::format("; {} can be asked for it", shown(library)));
}

}  // namespace

void add_table_code(Target& target, std::uint64_t base) {
  const Memory& memory = target.space.memory();
  const auto list = runtimes::windows::find_list(memory, base);
  if (!list) return;
  const std::vector<Table> tables = runtimes::windows::read_tables(memory, *list);
  const std::shared_ptr<const Memory> kept = runtimes::unowned(memory);
  os::ProcMap image;
  image.begin = base;
  const auto code = std::make_shared<runtimes::RuntimeCode>(runtimes::windows::open(kept, base), kept, image);
  for (const AddressRange& range : free_code(target, tables)) {
    auto module = std::make_unique<Module>(ModuleInfo{range.begin, range.end, 0, "[function table]", {}},
                                           code->make_source(), code);
    module->forget_id();
    if (const auto added = Inside::add_module(target.space, std::move(module)); !added)
      target.problems.push_back(added.error());
  }
  for (const Table& table : tables)
    if (table.callback != 0) target.notes.push_back(note_of(memory, table));
}

}  // namespace windlass::walk
