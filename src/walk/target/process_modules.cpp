#include "walk/target/process_modules.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <set>

#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/monotonic.h"
#include "os/living_thread.h"
#include "os/mapped_files.h"
#include "os/moved_text.h"
#include "os/proc_file.h"
#include "os/procmap_query.h"
#include "os/readers.h"
#include "runtimes/find.h"
#include "walk/inside.h"
#include "walk/interpreted.h"
#include "walk/module.h"
#include "walk/target/modules.h"

namespace windlass::walk {
namespace {

// "BEGIN-END rwxp OFFSET DEVICE INODE PATH": of files and of code. Heaps and stacks, which change all the time, are
// not looked at any further.
std::string lines_that_matter(std::string_view maps) {
  std::string lines;
  while (!maps.empty()) {
    const std::size_t end = std::min(maps.find('\n'), maps.size() - 1) + 1;
    const std::string_view line = maps.substr(0, end);
    const std::size_t space = line.find(' ');
    const bool executable = space < line.size() - 4 && line[space + 3] == 'x';
    if (executable || line.find('/') != std::string_view::npos) lines += line;
    maps.remove_prefix(end);
  }
  return lines;
}

bool matters(const os::ProcMap& map) { return map.executable || map.has_file(); }

bool has_code(const std::vector<os::ProcMap>& maps) { return std::ranges::any_of(maps, &os::ProcMap::executable); }

constexpr std::uint64_t kPage = 4096;

// What tells images apart: their headers with the hash table of symbols behind, and the dynamic section, which most
// linkers put last into what is read-only once it has been relocated.
void expect_images(ProcessMemory& memory, std::span<const os::ProcMap> maps) {
  constexpr std::uint64_t kHead = 6 * kPage, kTail = 2 * kPage;
  constexpr std::size_t kMostImages = 100;
  std::size_t images = 0;
  for (std::size_t i = 1; i < maps.size() && images < kMostImages; ++i) {
    const os::ProcMap& before = maps[i - 1];
    const auto is_same_file = [&](const os::ProcMap& map) {
      return map.file == before.file && map.path == before.path;
    };
    if (before.executable || !before.has_file() || !is_same_file(maps[i])) continue;
    if (before.offset == 0 && maps[i].executable) {
      for (std::uint64_t at = before.begin; at < std::min(before.end, before.begin + kHead); at += kPage)
        memory.expect(at);
      ++images;
    } else if (i + 1 == maps.size() || !is_same_file(maps[i + 1])) {
      for (std::uint64_t at = std::max(before.begin, before.end - kTail); at < before.end; at += kPage)
        memory.expect(at);
    }
  }
}

}  // namespace

ProcessModules::Pieces ProcessModules::pieces_of(const std::vector<os::ProcMap>& maps) {
  Pieces pieces;
  for (const os::ProcMap& map : maps)
    if (matters(map)) pieces[{map.path, map.file, map.has_file() ? 0 : map.begin}].maps.push_back(map);
  std::erase_if(pieces, [](const auto& piece) { return !has_code(piece.second.maps); });
  return pieces;
}

ProcessModules::FileState ProcessModules::look_at(const Piece& piece) {
  struct stat status {};
  if (piece.open ? ::fstat(piece.open.get(), &status) != 0 : !os::status_of(piece.file, status)) return {};
  return {status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size), status.st_ctim.tv_sec,
          status.st_ctim.tv_nsec};
}

bool ProcessModules::files_are_same() const {
  return std::ranges::all_of(pieces_, [](const auto& entry) {
    const Piece& piece = entry.second;
    return piece.file.empty() || look_at(piece) == piece.state;
  });
}

// Executable ones, and what is shared, as the tables of code managers are: other mappings of files change nothing by
// themselves. But a PE image's code may be without a file, and known by its headers only.
std::vector<ProcessModules::Extent> ProcessModules::extents_of(int maps) const {
  if (os::readers() != nullptr) return {};  // the kernel answers under a lock that a thread in a page fault may have
  const std::uint64_t shared = windows_ ? 0 : os::kQueryShared;
  std::vector<Extent> extents;
  for (const std::uint64_t kind : {os::kQueryExecutable, os::kQueryFileBacked | shared}) {
    os::ProcmapQuery found;
    for (std::uint64_t at = 0; os::query_mapping(maps, at, kind | os::kQueryOrNext, found); at = found.vma_end)
      extents.push_back({found.vma_start, found.vma_end, found.vma_flags, found.vma_offset, found.inode,
                         found.dev_major, found.dev_minor});
    if (errno != ENOENT) return {};
  }
  return extents;
}

// Modules and ranges in its executable mappings; those of neighbours may be one.
std::size_t ProcessModules::remove(Target& target, const Piece& piece) {
  std::size_t gone = 0;
  for (const os::ProcMap& map : piece.maps) {
    if (!map.executable) continue;
    // Several, where parts of it are published.
    for (std::uint64_t at = map.begin; at < map.end;) {
      const Module* module = module_at(target.space, at);
      if (module == nullptr) break;
      at = module->info().end;
      if (target.space.remove(module->info().begin)) ++gone;
    }
  }
  return gone;
}

// False where they are those that there were.
bool ProcessModules::open_published(const Target& target, pid_t pid, const std::vector<os::ProcMap>& maps) {
  std::vector<os::ProcMap> now;
  std::ranges::copy_if(maps, std::back_inserter(now), manager::shows_published);
  if (now != published_maps_) {
    published_maps_ = std::move(now);
    at_maps_ = manager::open_published(pid, published_maps_, target.space.memory());
  }
  manager::PublishedCodes codes = at_maps_;
  const auto open_memory = [&] { return runtimes::unowned(target.space.memory()); };
  const auto open_file = [&](const os::ProcMap& map) { return runtimes::open_mapped_file(pid, 0, map); };
  runtimes::add_runtimes(codes, maps, open_memory, open_file, published_);
  if (codes == published_) return false;
  published_ = std::move(codes);
  return true;
}

// A runtime's builtins, in its file.
bool ProcessModules::has_published_code(const Piece& piece) const {
  return std::ranges::any_of(published_, [&](const auto& code) {
    return code->is_in_file_of(piece.maps.front()) && !code->file_code().empty();
  });
}

// What is no longer as it was goes; in `now` the rest takes its new state's place.
std::size_t ProcessModules::remove_changed(Target& target, Pieces& now, bool others_published, bool was_opened) {
  std::size_t gone = 0;
  for (auto& [key, piece] : pieces_) {
    const auto same = now.find(key);
    const bool keeps = was_opened && !windows_ && same != now.end() && same->second.maps == piece.maps &&
                       (piece.file.empty() ? !others_published : look_at(piece) == piece.state) &&
                       !(others_published && has_published_code(piece));
    if (keeps)
      same->second = std::move(piece);
    else
      gone += remove(target, piece);
  }
  return gone;
}

void ProcessModules::note_files(const Target& target) {
  auto open = static_cast<std::size_t>(
      std::ranges::count_if(pieces_, [](const auto& entry) { return static_cast<bool>(entry.second.open); }));
  for (auto& [key, piece] : pieces_) {
    if (!piece.file.empty()) continue;
    const auto code = std::ranges::find_if(piece.maps, &os::ProcMap::executable);
    const Module* module = module_at(target.space, code->begin);
    if (module == nullptr || module->info().file.empty()) continue;
    piece.file = module->info().file;
    if (open < kMostOpen) piece.open = os::Descriptor(os::open_regular(piece.file));
    if (piece.open) ++open;
    piece.state = look_at(piece);
  }
}

void ProcessModules::fix_time(Target& target) const {
  for (const auto& code : published_) {
    code->set_time(monotonic_ns());
    note_problem(target, code->problem());
  }
  if (const auto& interpreted = Inside::interpreted(target); interpreted != nullptr)
    for (const Error& problem : interpreted->problems()) note_problem(target, problem);
}

Expected<Refreshed> ProcessModules::update(Target& target, pid_t pid, int maps) {
  std::vector<Extent> now = extents_of(maps);
  if (!now.empty() && now == extents_ && files_are_same()) {
    fix_time(target);
    return Refreshed{};
  }
  const std::string text = os::read_proc_file_of(pid, maps);
  if (text.empty()) return fail(ErrorCode::kSystem, "mappings cannot be read", 0, static_cast<std::uint64_t>(errno));
  extents_ = std::move(now);
  return update(target, pid, text);
}

// Files of the program, and of images with code at the pcs.
std::vector<os::ProcMap> ProcessModules::first_images(const std::vector<os::ProcMap>& maps) const {
  std::set<os::FileIdentity> files;
  if (const auto program = std::ranges::find_if(maps, &os::ProcMap::has_file); program != maps.end())
    files.insert(program->file);
  for (const os::ProcMap& map : maps)
    if (map.has_file() && std::ranges::any_of(pcs_, [&](std::uint64_t pc) { return pc >= map.begin && pc < map.end; }))
      files.insert(map.file);
  std::vector<os::ProcMap> images;
  std::ranges::copy_if(maps, std::back_inserter(images),
                       [&](const os::ProcMap& map) { return map.has_file() && files.contains(map.file); });
  return images;
}

// The first page of each file, which tells a PE image and where an ELF image is; those images, and the vdso.
void ProcessModules::expect_first(const std::vector<os::ProcMap>& maps) const {
  for (const os::ProcMap& map : maps) {
    if (map.path == "[vdso]")
      for (std::uint64_t at = map.begin; at < map.end; at += kPage) memory_->expect(at);
    else if (map.has_file() && map.offset == 0 && map.readable)
      memory_->expect(map.begin);
  }
  expect_images(*memory_, first_images(maps));
}

// The files of code, by the paths that are tried first. False: the first of them cannot be opened so.
bool ProcessModules::expect_files(pid_t thread, const std::vector<os::ProcMap>& maps) {
  std::vector<std::string> paths;
  std::set<std::pair<std::string_view, std::uint64_t>> seen;
  for (const os::ProcMap& map : maps)
    if (map.executable && map.has_file() && seen.emplace(map.path, map.file.inode).second)
      paths.push_back(os::files_of_thread(thread, map).front().path);
  if (os::readers() != nullptr) os::readers()->open_kept(paths);
  return !paths.empty() && os::Descriptor(os::open_regular(paths.front()));
}

Refreshed ProcessModules::update(Target& target, pid_t pid, std::string_view maps) {
  std::string lines = lines_that_matter(maps);
  const bool was_opened = opening_ == Opening::kNow || pieces_.empty();
  if (memo_ != nullptr) memo_->clear();
  if (!was_opened) opening_ = Opening::kNow;  // of files that were not opened nothing is known: all is added again
  if (was_opened && lines == lines_ && files_are_same()) {
    fix_time(target);
    return {};
  }
  const std::size_t before = target.space.modules().size();
  std::vector<os::ProcMap> all = os::parse_proc_maps(lines);
  os::name_moved_text(pid, 0, all);
  Pieces now = pieces_of(all);
  if (memory_ != nullptr && pieces_.empty()) expect_first(all);
  Refreshed changed;
  if (windows_)
    for (const ModuleInfo* info : target.space.modules())
      if (info->windows && target.space.remove(info->begin)) ++changed.modules_gone;
  changed.modules_gone += remove_changed(target, now, open_published(target, pid, all), was_opened);
  auto& interpreted = Inside::interpreted(target);
  if (interpreted == nullptr) interpreted = std::make_shared<Interpreted>();
  interpreted->set_mappings(all, [memory = memory_](std::span<const os::ProcMap> images) {
    if (memory != nullptr) expect_images(*memory, images);
  });
  fix_time(target);
  // What has modules still is not added again. Neighbours in a file without code stay: they may be a PE image's
  // headers.
  std::erase_if(all, [&](const os::ProcMap& map) {
    const Module* module = module_at(target.space, map.begin);
    return module != nullptr && map.executable;
  });
  const pid_t thread = os::living_thread(pid);
  const auto find = [&](const os::ProcMap& map, BuildId&) { return os::files_of_thread(thread, map); };
  const bool can_wait = opening_ == Opening::kWhenNeeded && expect_files(thread, first_images(all));
  if (!can_wait) (void)expect_files(thread, all);
  (void)add_modules(target, all, find, static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)),
                    [&](std::span<const FileRange>) { return published_; },
                    {can_wait ? Opening::kWhenNeeded : Opening::kNow, memo_.get()});
  const std::vector<const ModuleInfo*> infos = target.space.modules();
  changed.modules_new = infos.size() + changed.modules_gone - before;
  windows_ = std::ranges::any_of(infos, &ModuleInfo::windows);
  pieces_ = std::move(now);
  lines_ = std::move(lines);
  if (!can_wait) note_files(target);
  return changed;
}

}  // namespace windlass::walk
