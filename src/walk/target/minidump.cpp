// A minidump as an address space.
#include "formats/image/minidump.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/pages.h"
#include "formats/image/unwind_sections.h"
#include "walk/target/dump_file.h"
#include "walk/target/dump_memory.h"
#include "walk/target/file_search.h"
#include "walk/target/minidump_context.h"
#include "walk/target/modules.h"
#include "walk/target/pe_modules.h"
#include "walk/target/table_code.h"
#include "windlass/target.h"

namespace windlass {
namespace {

using image::MinidumpFile;
using image::MinidumpModule;
using os::ProcMap;

// Anything with a `begin`, ascending.
template <typename Ranges>
auto first_behind(Ranges& ranges, std::uint64_t address) {
  return std::upper_bound(ranges.begin(), ranges.end(), address,
                          [](std::uint64_t a, const auto& range) { return a < range.begin; });
}
template <typename Ranges>
void sort_by_begin(Ranges& ranges) {
  std::stable_sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
}

// "C:\dir\x.dll" or a bare name, as Windows writes them; paths of Linux begin with '/', also in Wine's dumps.
bool is_windows_module(const MinidumpFile& dump, const MinidumpModule& module) {
  return module.path.find('\\') != std::string::npos || (dump.windows && !module.path.starts_with('/'));
}

std::vector<walk::FileRange> add_windows_modules(Target& target, const MinidumpFile& dump, const FileSearch& search) {
  std::vector<walk::FileRange> ranges;
  for (const MinidumpModule& module : dump.modules) {
    if (!is_windows_module(dump, module)) continue;
    const auto size = static_cast<std::uint32_t>(module.end - module.begin);
    const walk::ListedPe listed{
        module.begin, module.end, module.path, {module.timestamp, size, module.codeview_identity}};
    const bool is_program = &module == &dump.modules.front();  // it is listed first
    const auto files = walk::search_windows_files(search, listed.path, module.timestamp, size, is_program);
    const auto more = walk::add_listed_pe(target, listed, files);
    ranges.insert(ranges.end(), more.begin(), more.end());
  }
  return ranges;
}

// The mappings, from the text of /proc/PID/maps if there is one, else one for each module.
std::vector<os::ProcMap> maps_of_dump(const MinidumpFile& dump) {
  const auto* text = reinterpret_cast<const char*>(dump.linux_maps.data());
  auto maps = os::parse_proc_maps(std::string_view(text, dump.linux_maps.size()));
  for (os::ProcMap& map : maps) map.file = {};  // of another machine
  sort_by_begin(maps);
  std::vector<os::ProcMap> images;
  for (const MinidumpModule& module : dump.modules) {
    if (is_windows_module(dump, module)) continue;
    const auto behind = first_behind(maps, module.end - 1);
    if (behind != maps.begin() && behind[-1].end > module.begin) continue;  // the text told it in parts
    os::ProcMap map;
    map.begin = module.begin;
    map.end = module.end;
    map.executable = map.whole_image = true;
    map.path = module.path;
    images.push_back(std::move(map));
  }
  maps.insert(maps.end(), std::make_move_iterator(images.begin()), std::make_move_iterator(images.end()));
  sort_by_begin(maps);
  return maps;
}

void add_threads(Target& target, const MinidumpFile& dump) {
  for (const image::MinidumpThread& from : dump.threads) {
    Thread thread;
    thread.id = from.id;
    thread.name = from.name;
    ByteView context = from.context;
    if (dump.exception && dump.exception->thread == from.id) {
      thread.faulted = !dump.exception->requested();
      // The thread's own context may be that of the handler that wrote the dump.
      if (!dump.exception->context.empty()) context = dump.exception->context;
    }
    if (context.empty())  // Windows leaves out that of the thread that wrote the dump
      target.notes.push_back(fmt::format("thread {} has no registers in the dump", from.id));
    else if (const auto registers = walk::context_registers(target.space.architecture(), context))
      thread.registers = *registers;
    else
      target.problems.push_back(registers.error());
    target.threads.push_back(std::move(thread));
  }
}

std::string command_of(const MinidumpFile& dump) {
  const auto* text = reinterpret_cast<const char*>(dump.linux_command_line.data());
  std::string command(text, dump.linux_command_line.size());
  while (command.ends_with('\0')) command.pop_back();
  std::replace(command.begin(), command.end(), '\0', ' ');
  return command.empty() && !dump.modules.empty() ? dump.modules.front().path : command;
}

}  // namespace

Expected<Target> walk::read_minidump(MappedFile file, const DumpOptions& options) {
  const auto dump = MinidumpFile::parse(file.bytes());
  if (!dump) return Failure(dump.error());

  auto owned = std::make_unique<walk::DumpMemory>(std::move(file));
  walk::DumpMemory& memory = *owned;
  std::vector<walk::MemoryPiece> pieces;
  for (const image::MinidumpMemory& piece : dump->memory) pieces.push_back({piece.begin, piece.bytes});
  memory.set_pieces(std::move(pieces));

  Target target(TargetKind::kMinidump, AddressSpace(image::architecture_of(dump->machine), std::move(owned)));
  target.command = command_of(*dump);
  target.process = dump->process;
  target.problems = dump->problems;
  add_threads(target, *dump);
  auto ranges = add_windows_modules(target, *dump, options.files);
  auto modules = dump->modules;
  sort_by_begin(modules);
  const auto find = [&](const os::ProcMap& map, walk::BuildId& build_id) {
    const MinidumpModule* program = dump->modules.empty() ? nullptr : &dump->modules.front();  // it is listed first
    const auto behind = first_behind(modules, map.begin);
    if (build_id.get().empty() && behind != modules.begin() && map.begin < behind[-1].end)
      build_id.set(behind[-1].build_id);
    return walk::search_files(options.files, map.path, build_id.get(), program != nullptr && program->path == map.path);
  };
  const std::vector<os::ProcMap> maps = maps_of_dump(*dump);
  const auto more = walk::add_modules(target, maps, find, kSmallestPage, [&](std::span<const walk::FileRange>) {
    return manager::open_published(maps, target.space.memory());
  });
  ranges.insert(ranges.end(), more.begin(), more.end());
  for (const MinidumpModule& module : dump->modules)
    if (is_windows_module(*dump, module)) walk::add_table_code(target, module.begin);
  memory.add_files(ranges);
  return target;
}

Expected<Target> open_minidump(const std::string& path, const DumpOptions& options) {
  auto file = walk::open_dump_file(path);
  if (!file) return Failure(file.error());
  return walk::read_minidump(std::move(*file), options);
}

}  // namespace windlass
