// A core file as an address space.
#include <algorithm>
#include <optional>

#include <elf.h>

#include "base/pages.h"
#include "formats/image/core.h"
#include "formats/image/unwind_sections.h"
#include "runtimes/find.h"
#include "walk/inside.h"
#include "walk/interpreted.h"
#include "walk/target/core_maps.h"
#include "walk/target/dump_file.h"
#include "walk/target/dump_memory.h"
#include "walk/target/file_search.h"
#include "walk/target/modules.h"
#include "walk/target/regsets.h"
#include "windlass/target.h"

namespace windlass {
namespace {

using image::CoreFile;

void add_threads(Target& target, const CoreFile& core) {
  const Architecture architecture = target.space.architecture();
  for (const image::CoreThread& from : core.threads) {
    Thread thread;
    thread.id = from.id;
    // A kernel notes the signal for all threads and puts the one that got it first.
    thread.faulted = from.signal != 0 && &from == &core.threads.front();
    if (from.id == core.process) thread.name = core.name;
    if (const auto registers = walk::general_registers(architecture, from.general))
      thread.registers = *registers;
    else
      target.problems.push_back(registers.error());
    if (architecture == Architecture::kAArch64 && !from.vector.empty())
      if (const auto added = walk::add_vector_registers(thread.registers, from.vector); !added)
        target.problems.push_back(added.error());
    if (from.pac_mask != 0) target.space.set_pointer_mask(from.pac_mask);
    target.threads.push_back(std::move(thread));
  }
}

// Data that a cut-off core has lost were written since they came from their file.
void add_files(walk::DumpMemory& memory, const CoreFile& core, std::span<const walk::FileRange> found) {
  std::vector<walk::FileRange> files(found.begin(), found.end());
  std::erase_if(files, [&](const walk::FileRange& range) {
    const image::CoreSegment* segment = core.segment_at(range.begin);
    return segment != nullptr && segment->cut_off && !segment->executable;
  });
  memory.add_files(files);
}

}  // namespace

Expected<Target> walk::read_core(MappedFile file, const DumpOptions& options) {
  const auto core = CoreFile::parse(file.bytes());
  if (!core) return Failure(core.error());

  auto owned = std::make_unique<walk::DumpMemory>(std::move(file));
  walk::DumpMemory& memory = *owned;
  std::vector<walk::MemoryPiece> pieces;
  for (const image::CoreSegment& segment : core->segments)
    if (!segment.bytes.empty()) pieces.push_back({segment.begin, segment.bytes});
  memory.set_pieces(std::move(pieces));

  Target target(TargetKind::kCore, AddressSpace(image::architecture_of(core->machine), std::move(owned)));
  target.command = core->arguments.empty() ? core->name : core->arguments;
  target.process = core->process;
  target.problems = core->problems;
  add_threads(target, *core);
  const std::vector<os::ProcMap> maps = walk::maps_of(*core, target.space.memory());
  const std::string program = walk::program_of(*core, maps);
  const auto find = [&](const os::ProcMap& map, walk::BuildId& build_id) {
    return walk::search_files(options.files, map.path, build_id.get(), !program.empty() && map.path == program);
  };
  // Runtimes are read in the files' memory, too.
  manager::PublishedCodes published;
  manager::Interpreters interpreters;
  const auto find_published = [&](std::span<const walk::FileRange> found) {
    add_files(memory, *core, found);
    published = manager::open_published(maps, target.space.memory());
    const auto open_memory = [&] { return runtimes::unowned(target.space.memory()); };
    const auto open_file = [&](const os::ProcMap& map) -> Expected<MappedFile> {
      for (const walk::FileRange& range : found)
        if (range.begin == map.begin) return MappedFile::open(range.file);
      return fail(ErrorCode::kNotFound, "the runtime's file cannot be opened", map.begin);
    };
    runtimes::add_runtimes(published, maps, open_memory, open_file, {});
    interpreters = runtimes::find_interpreters(maps, open_memory, {});
    return published;
  };
  (void)walk::add_modules(target, maps, find, core->auxiliary_value(AT_PAGESZ).value_or(kSmallestPage), find_published);
  for (const auto& code : published) walk::note_problem(target, code->problem());
  for (const auto& interpreter : interpreters) walk::note_problem(target, interpreter->problem());
  walk::Inside::interpreted(target) = walk::Interpreted::of(interpreters);
  return target;
}

Expected<Target> open_core(const std::string& path, const DumpOptions& options) {
  auto file = walk::open_dump_file(path);
  if (!file) return Failure(file.error());
  return walk::read_core(std::move(*file), options);
}

}  // namespace windlass
