#include "walk/target/modules.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include <elf.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/mapped_file.h"
#include "base/pages.h"
#include "formats/image/elf.h"
#include "os/mapped_files.h"
#include "walk/inside.h"
#include "walk/module.h"
#include "walk/target/memory_image.h"
#include "walk/target/pe_modules.h"

namespace windlass::walk {
namespace {

constexpr std::size_t kMaxProblems = 256;

// All mappings of one file.
struct FileGroup {
  std::vector<const os::ProcMap*> maps;  // ascending
  bool executable = false;
};

struct OpenedFile {
  std::string path;
  MappedFile file;                       // empty: its head suffices
  std::vector<std::byte> head;           // with the program headers, of a file that is the mapped one for certain
  std::optional<image::ElfImage> image;  // of the head: without sections
};

// Headers in the process's memory, read when first needed.
class MappedHeaders {
 public:
  MappedHeaders(const Memory& memory, const os::ProcMap& first) : memory_(memory), first_(first) {}
  // Null: they are not mapped, or not readable.
  const LoadedHeaders* get() {
    if (!known_)
      known_ = first_.offset == 0
                   ? read_loaded_headers(memory_, first_.begin)
                   : Expected<LoadedHeaders>(fail(ErrorCode::kNotFound, "the image's headers are not mapped", 0));
    return *known_ ? &**known_ : nullptr;
  }

 private:
  const Memory& memory_;
  const os::ProcMap& first_;
  std::optional<Expected<LoadedHeaders>> known_;
};

// What names the addresses of a file's mappings, without mapping it. False: all of the file is needed.
bool read_head(int file, OpenedFile& opened) {
  opened.head.resize(kSmallestPage);
  const ssize_t got = ::pread(file, opened.head.data(), opened.head.size(), 0);
  const ByteView head(opened.head.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  auto image = image::ElfImage::parse(head);
  if (!image || image->segments().empty() || !image->has_all_segments()) return false;
  opened.image = std::move(*image);
  return true;
}

class ModuleAdder {
 public:
  ModuleAdder(Target& target, std::span<const os::ProcMap> maps, FindFiles find, std::uint64_t page_size,
              FindPublished find_published, const AddOptions& options)
      : target_(target),
        maps_(maps),
        find_(find),
        page_size_(page_size),
        find_published_(find_published),
        options_(options) {}

  std::vector<FileRange> run() {
    std::map<std::pair<std::string, std::uint64_t>, FileGroup> groups;
    for (const os::ProcMap& map : maps_) {
      if (map.begin >= map.end) continue;
      if (map.has_file()) {
        FileGroup& group = groups[{map.path, map.file.inode}];
        group.maps.push_back(&map);
        group.executable |= map.executable;
      } else if (map.executable) {
        add_without_file(map);
      }
    }
    for (const auto& [key, group] : groups)
      if (group.executable) add_file(group);
    published_ = find_published_(ranges_);
    add_found();
    for (const auto& code : published_)
      for (const AddressRange& range : code->file_code()) split_windows_module(range);
    return std::move(ranges_);
  }

 private:
  struct Found {
    ModuleInfo info;
    std::vector<std::byte> image;  // from memory; empty: from the file
    bool code_only = false;        // neither
  };

  // Ascending, so that adding one is not linear in those there are.
  void add_found() {
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Found& a, const Found& b) { return a.info.begin < b.info.begin; });
    for (Found& found : found_) {
      ModuleInfo& info = found.info;
      Expected<void> added;
      if (found.code_only) {
        added = add_code(info);
      } else if (found.image.empty()) {
        added = add_file_code(info);
      } else {
        added = target_.space.add_module(std::move(info), std::move(found.image));
      }
      if (!added && target_.problems.size() < kMaxProblems) target_.problems.push_back(added.error());
    }
  }

  // Adds code whose functions are not known, or whose maker has published them.
  Expected<void> add_code(const ModuleInfo& info) {
    Expected<void> added;
    manager::cut_by(published_, info.begin, info.end, [&](std::uint64_t begin, std::uint64_t end, const auto& code) {
      ModuleInfo part{begin, end, info.bias, info.path, {}};
      std::unique_ptr<Module> module;
      if (code == nullptr) {
        module = std::make_unique<Module>(std::move(part), sources::generated_source(), info.bias, image::CodeMachine(),
                                          true);
      } else {
        module = std::make_unique<Module>(std::move(part), code->make_source(), code);
        module->forget_id();  // its functions come and go
      }
      if (const auto piece = Inside::add_module(target_.space, std::move(module)); !piece) added = piece;
    });
    return added;
  }

  // All of it the file's, or a runtime's builtins among it.
  Expected<void> add_file_code(const ModuleInfo& info) {
    Expected<void> added;
    manager::cut_file_by(
        published_, info.begin, info.end, [&](std::uint64_t begin, std::uint64_t end, const auto& code) {
          ModuleInfo part = info;
          part.begin = begin;
          part.end = end;
          Expected<void> piece;
          if (code == nullptr) {
            auto module = std::make_unique<Module>(std::move(part));
            module->keep_code({.memo = options_.memo, .code = module->id(), .bias = module->info().bias});
            piece = Inside::add_module(target_.space, std::move(module));
          } else {
            auto module = std::make_unique<Module>(std::move(part), code->make_source(), code);
            module->forget_id();
            piece = Inside::add_module(target_.space, std::move(module));
          }
          if (!piece) added = piece;
        });
    return added;
  }

  // A PE image is a module already. Builtins of a runtime in it take their part of that.
  void split_windows_module(const AddressRange& range) {
    const Module* module = module_at(target_.space, range.begin);
    if (module == nullptr || !module->info().windows || module->names() != nullptr) return;
    const ModuleInfo info = module->info();
    if (!target_.space.remove(info.begin)) return;
    const auto added = add_file_code(info);
    if (!added && target_.problems.size() < kMaxProblems) target_.problems.push_back(added.error());
  }

  void add_file(const FileGroup& group) {
    const os::ProcMap& first = *group.maps.front();
    MappedHeaders headers(target_.space.memory(), first);
    if (options_.opening == Opening::kWhenNeeded && add_unopened(group, headers)) return;
    const auto opened = open(group, headers);
    if (first.whole_image) {
      for (const os::ProcMap* map : group.maps) add_whole_image(*map, opened ? &*opened : nullptr);
      return;
    }
    if (opened)
      for (const os::ProcMap* map : group.maps) ranges_.push_back({map->begin, map->end, map->offset, opened->path});
    for (std::size_t i = 0; i < group.maps.size(); ++i) {
      if (!group.maps[i]->executable) continue;
      const os::ProcMap& map = *group.maps[i];
      ModuleInfo info = module_of(group, i);
      if (opened && opened->image) {
        if (const auto address = opened->image->address_of_file_offset(map.offset, true, page_size_)) {
          info.bias = map.begin - *address;
          info.file = opened->path;
          found_.push_back({std::move(info), {}, false});
          continue;
        }
      }
      if (map.presumed && !is_executable(map, opened ? &*opened : nullptr, headers.get())) continue;
      add_from_memory(std::move(info), headers.get(), first.begin);
    }
  }

  // That of an executable mapping; `i` becomes the last of it. A mapping that mprotect has split is still one module.
  static ModuleInfo module_of(const FileGroup& group, std::size_t& i) {
    const os::ProcMap& map = *group.maps[i];
    ModuleInfo info{map.begin, map.end, 0, map.path, {}};
    while (i + 1 < group.maps.size() && group.maps[i + 1]->executable && group.maps[i + 1]->begin == info.end &&
           group.maps[i + 1]->offset == map.offset + (info.end - map.begin))
      info.end = group.maps[++i]->end;
    return info;
  }

  // False: the file has to be looked at.
  bool add_unopened(const FileGroup& group, MappedHeaders& headers) {
    const os::ProcMap& first = *group.maps.front();
    if (first.whole_image || os::device_of(first) != 0 || headers.get() == nullptr) return false;
    const auto no_build_id = [] { return std::string(); };
    BuildId build_id(no_build_id);
    std::vector<Found> modules;
    for (std::size_t i = 0; i < group.maps.size(); ++i) {
      if (!group.maps[i]->executable) continue;
      const os::ProcMap& map = *group.maps[i];
      ModuleInfo info = module_of(group, i);
      const auto address = image::address_of_file_offset(headers.get()->segments, map.offset, true, page_size_);
      if (!address || map.presumed) return false;
      const std::vector<FileCandidate> files = find_(map, build_id);
      if (files.empty() || !files.front().certain) return false;
      info.bias = map.begin - *address;
      info.file = files.front().path;
      modules.push_back({std::move(info), {}, false});
    }
    std::ranges::move(modules, std::back_inserter(found_));
    return true;
  }

  void add_whole_image(const os::ProcMap& map, const OpenedFile* opened) {
    ModuleInfo info{map.begin, map.end, map.begin, map.path, {}};
    const auto first =
        opened != nullptr && opened->image ? opened->image->address_of_file_offset(0, false, page_size_) : std::nullopt;
    if (!first) {
      found_.push_back({std::move(info), {}, true});
      return;
    }
    info.bias = map.begin - *first;
    info.file = opened->path;
    for (const image::Segment& s : opened->image->segments())
      if (s.type == PT_LOAD)
        ranges_.push_back({s.vaddr + info.bias, s.vaddr + info.bias + s.filesz, s.offset, info.file});
    found_.push_back({std::move(info), {}, false});
  }

  // Whether the file puts code into the mapping.
  bool is_executable(const os::ProcMap& map, const OpenedFile* opened, const LoadedHeaders* headers) const {
    if (opened != nullptr && opened->image) return false;  // it was asked already
    if (headers == nullptr) return false;
    for (const image::Segment& s : headers->segments)
      if (s.type == PT_LOAD && (s.flags & PF_X) != 0 && map.offset + page_size_ > s.offset &&
          map.offset < s.offset + s.filesz)
        return true;
    return false;
  }

  // The vdso, and code that was made at run time.
  void add_without_file(const os::ProcMap& map) {
    if (map.path != "[vdso]") {
      found_.push_back({{map.begin, map.end, 0, map.path.empty() ? "[anon]" : map.path, {}}, {}, true});
      return;
    }
    const auto headers = read_loaded_headers(target_.space.memory(), map.begin);
    add_from_memory({map.begin, map.end, 0, map.path, {}}, headers ? &*headers : nullptr, map.begin);
  }

  void add_from_memory(ModuleInfo info, const LoadedHeaders* headers, std::uint64_t base) {
    info.bias = base;
    if (headers != nullptr) {
      info.bias = headers->bias;
      if (auto bytes = read_memory_image(target_.space.memory(), base)) {
        if (info.path != "[vdso]") note(fmt::format("{}: taken from memory", info.path));
        found_.push_back({std::move(info), std::move(*bytes), false});
        return;
      }
    }
    found_.push_back({std::move(info), {}, true});
  }

  // Once.
  void note(std::string text) {
    if (std::ranges::find(target_.notes, text) == target_.notes.end()) target_.notes.push_back(std::move(text));
  }

  std::optional<OpenedFile> open(const FileGroup& group, MappedHeaders& headers) {
    const os::ProcMap* code = nullptr;
    for (const os::ProcMap* map : group.maps)
      if (map->executable && code == nullptr) code = map;
    if (code == nullptr) return std::nullopt;
    const auto read_build_id = [&] {
      const LoadedHeaders* known = headers.get();
      return known != nullptr ? known->build_id : std::string();
    };
    BuildId build_id(read_build_id);
    std::string why;
    for (const FileCandidate& candidate : find_(*code, build_id)) {
      const os::OpenedRegular found = os::open_regular(candidate);
      OpenedFile opened{candidate.path, {}, {}, {}};
      if (!found.file) continue;
      if (candidate.certain && read_head(found.file.get(), opened)) return opened;
      auto file = MappedFile::from_fd(found.file.get());
      if (!file) continue;
      opened.file = std::move(*file);
      if (auto image = image::ElfImage::parse(opened.file.bytes())) opened.image = std::move(*image);
      if (candidate.certain || is_same(candidate, opened, build_id.get(), found.status.st_ino)) return opened;
      why = fmt::format("{} is not the file that ran (build id {}, there {})", candidate.path,
                        opened.image && !opened.image->build_id().empty() ? opened.image->build_id() : "none",
                        build_id.get().empty() ? "unknown" : build_id.get());
    }
    if (!why.empty())
      target_.notes.push_back(why);
    else
      target_.notes.push_back(fmt::format("{}: cannot be opened", code->path));
    return std::nullopt;
  }

  static bool is_same(const FileCandidate& candidate, const OpenedFile& opened, const std::string& build_id,
                      std::uint64_t inode) {
    const std::string here = opened.image ? opened.image->build_id() : std::string();
    return os::compare({.inode = candidate.inode, .build_id = build_id}, here, inode) != os::Sameness::kOther;
  }

  Target& target_;
  std::span<const os::ProcMap> maps_;
  FindFiles find_;
  std::uint64_t page_size_;
  FindPublished find_published_;
  AddOptions options_;
  manager::PublishedCodes published_;
  std::vector<FileRange> ranges_;
  std::vector<Found> found_;
};

}  // namespace

void note_problem(Target& target, const std::optional<Error>& problem) {
  if (!problem) return;
  std::string note = fmt::format("what the process says of its code: {}", problem->text());
  if (std::ranges::find(target.notes, note) == target.notes.end()) target.notes.push_back(std::move(note));
}

std::vector<FileRange> add_modules(Target& target, std::span<const os::ProcMap> maps, FindFiles find,
                                   std::uint64_t page_size, FindPublished published, const AddOptions& options) {
  const std::vector<os::ProcMap> elf = add_loaded_pe(target, maps, find);
  return ModuleAdder(target, elf, find, page_size, published, options).run();
}

}  // namespace windlass::walk
