#include "profiler/kernel/allocation_probes.h"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "formats/image/elf.h"
#include "os/mapped_files.h"
#include "os/proc_file.h"
#include "os/proc_maps.h"
#include "profiler/kernel/usdt_notes.h"
#include "profiler/kernel/usdt_operand.h"

namespace windlass::profiler {
namespace {

constexpr const char* kProvider = "otel_memory";
constexpr unsigned kNoArgument = ~0u;

struct Allocator {
  const char* name;
  unsigned size, times = kNoArgument, block = kNoArgument;  // the numbers of arguments
};
// The operators of C++ are probed where their file has malloc(), too. Those of libstdc++ call malloc().
constexpr Allocator kAllocators[] = {{"malloc", 0},
                                     {"calloc", 1, 0},
                                     {"realloc", 1, kNoArgument, 0},
                                     {"memalign", 1},
                                     {"aligned_alloc", 1},
                                     {"posix_memalign", 2},
                                     {"valloc", 0},
                                     {"pvalloc", 0},
                                     {"_Znwm", 0},
                                     {"_Znam", 0},
                                     {"_ZnwmRKSt9nothrow_t", 0},
                                     {"_ZnamRKSt9nothrow_t", 0},
                                     {"_ZnwmSt11align_val_t", 0},
                                     {"_ZnamSt11align_val_t", 0},
                                     {"_ZnwmSt11align_val_tRKSt9nothrow_t", 0},
                                     {"_ZnamSt11align_val_tRKSt9nothrow_t", 0}};

struct OpenImage {
  MappedFile file;
  image::ElfImage image;
};
std::optional<OpenImage> open_image(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file) return std::nullopt;
  auto image = image::ElfImage::parse(file->bytes());
  if (!image || image->elf_class() != image::ElfClass::k64) return std::nullopt;
  return OpenImage{std::move(*file), std::move(*image)};
}

// The functions of the image by their names, with their addresses in the file.
std::map<std::string, wl_code_range, std::less<>> functions_of(const image::ElfImage& image) {
  std::map<std::string, wl_code_range, std::less<>> functions;
  for (const image::Section& table : image.sections()) {
    if ((table.type != SHT_SYMTAB && table.type != SHT_DYNSYM) || table.link >= image.sections().size()) continue;
    const auto bytes = image.stored_bytes(table);
    const auto names = image.stored_bytes(image.sections()[table.link]);
    if (!bytes || !names) continue;
    for (std::uint64_t at = 0; const auto symbol = bytes->at<Elf64_Sym>(at); at += sizeof(Elf64_Sym)) {
      if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_shndx == SHN_UNDEF || symbol->st_value == 0)
        continue;
      if (const auto name = names->string_at(symbol->st_name); name)
        functions.try_emplace(std::string(*name), wl_code_range{symbol->st_value, symbol->st_value + symbol->st_size});
    }
  }
  return functions;
}

std::optional<std::uint64_t> offset_of(const image::ElfImage& image, std::uint64_t address) {
  for (const image::Segment& segment : image.segments())
    if (segment.type == PT_LOAD && address >= segment.vaddr && address - segment.vaddr < segment.filesz)
      return address - segment.vaddr + segment.offset;
  return std::nullopt;
}

wl_allocation_place place_of(const Allocator& allocator, std::uint64_t begin, bool is_of_libc) {
  wl_allocation_place place{};
  place.kind = WL_ALLOCATION_CALL;
  place.begin = begin;
  place.size = function_argument(allocator.size);
  if (allocator.times != kNoArgument) place.times = function_argument(allocator.times);
  if (allocator.block != kNoArgument) {
    place.block = function_argument(allocator.block);
    place.reallocates = 1;
    place.passes_null = is_of_libc ? 1 : 0;
  }
  return place;
}

// realloc() of glibc and of musl calls malloc() for a null pointer, those of other allocators do not.
bool is_libc(const std::map<std::string, wl_code_range, std::less<>>& functions, const std::string& name) {
  return functions.contains("__libc_malloc") || name.find("musl") != std::string::npos;
}

// The files that a process runs code of.
struct MappedImage {
  std::string path;  // to open the file by
  std::string name;  // as the process knows it
};
std::vector<MappedImage> images_of(std::uint32_t tgid) {
  std::vector<MappedImage> images;
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen;
  const auto pid = static_cast<pid_t>(tgid);
  for (const os::ProcMap& map : os::parse_proc_maps(os::read_proc_file(fmt::format("/proc/{}/maps", tgid)))) {
    if (!map.executable || !map.has_file()) continue;
    if (!seen.emplace(std::uint64_t{map.file.major} << 32 | map.file.minor, map.file.inode).second) continue;
    for (const os::FileCandidate& candidate : os::files_of(pid, 0, map))
      if (access(candidate.path.c_str(), R_OK) == 0) {
        images.push_back({candidate.path, map.path});
        break;
      }
  }
  return images;
}

bool has_allocator(const std::string& path, const std::string& name, bool& of_libc) {
  const auto open = open_image(path);
  if (!open) return false;
  const auto functions = functions_of(open->image);
  of_libc = is_libc(functions, name);
  return functions.contains("malloc");
}

bool add_process(std::uint32_t tgid, AllocationProbes& to) {
  const std::vector<MappedImage> images = images_of(tgid);
  bool samples = false;
  for (const MappedImage& image : images) {
    if (!add_sampler_probes(image.path, tgid, to)) continue;
    samples = true;
    to.remarks.push_back(
        fmt::format("process {} takes samples of its allocations itself: {}:alloc in {}. Their rate is "
                    "the process's, not that of --alloc",
                    tgid, kProvider, image.name));
  }
  if (samples) return true;
  // An allocator that stands in for that of libc.
  std::vector<const MappedImage*> own, of_libc;
  for (const MappedImage& image : images)
    if (bool libc = false; has_allocator(image.path, image.name, libc)) (libc ? of_libc : own).push_back(&image);
  bool found = false;
  for (const MappedImage* image : own.empty() ? of_libc : own) {
    if (!add_function_probes(image->path, tgid, to)) continue;
    found = true;
    to.remarks.push_back(
        fmt::format("each allocation of process {} goes through the kernel, by probes on malloc and the "
                    "like in {}: expect 1 to 3 us a call. What is freed is not seen",
                    tgid, image->name));
  }
  return found;
}

}  // namespace

bool AllocationProbes::follows_blocks() const {
  return std::ranges::any_of(probes,
                             [](const AllocationProbe& probe) { return probe.place.kind == WL_ALLOCATION_FREE; });
}

bool add_sampler_probes(const std::string& path, std::uint32_t tgid, AllocationProbes& to) {
  const auto open = open_image(path);
  if (!open) return false;
  bool found = false;
  const auto add = [&](const StaticProbe& probe, const wl_allocation_place& place) {
    to.probes.push_back({tgid, path, probe.place, probe.semaphore, place});
  };
  for (const StaticProbe& probe : find_static_probes(open->image, kProvider, "alloc")) {
    const auto arguments = parse_operands(probe.arguments);
    if (arguments.size() != 3 || !arguments[0] || !arguments[1] || !arguments[2]) continue;
    add(probe, {.block = *arguments[0],
                .size = *arguments[1],
                .times = {},
                .weight = *arguments[2],
                .begin = 0,
                .first_range = 0,
                .ranges = 0,
                .kind = WL_ALLOCATION_SAMPLE,
                .reallocates = 0,
                .passes_null = 0,
                .unused = {}});
    found = true;
  }
  if (!found) return false;
  for (const StaticProbe& probe : find_static_probes(open->image, kProvider, "free")) {
    const auto arguments = parse_operands(probe.arguments);
    if (arguments.size() != 1 || !arguments[0]) continue;
    wl_allocation_place place{};
    place.block = *arguments[0];
    place.kind = WL_ALLOCATION_FREE;
    add(probe, place);
  }
  return true;
}

bool add_function_probes(const std::string& path, std::uint32_t tgid, AllocationProbes& to) {
  const auto open = open_image(path);
  if (!open) return false;
  const auto functions = functions_of(open->image);
  if (!functions.contains("malloc")) return false;
  const bool of_libc = is_libc(functions, path);
  const auto first = static_cast<std::uint32_t>(to.functions.size());
  const std::size_t first_probe = to.probes.size();
  for (const Allocator& allocator : kAllocators) {
    const auto function = functions.find(allocator.name);
    if (function == functions.end()) continue;
    const wl_code_range& range = function->second;
    // memalign() and aligned_alloc() are one function in glibc.
    const auto same = [&](const wl_code_range& other) { return other.begin == range.begin; };
    if (std::any_of(to.functions.begin() + first, to.functions.end(), same)) continue;
    const auto offset = offset_of(open->image, range.begin);
    if (!offset) continue;
    to.functions.push_back(range);
    to.probes.push_back({tgid, path, *offset, 0, place_of(allocator, range.begin, of_libc)});
  }
  for (std::size_t i = first_probe; i < to.probes.size(); ++i) {
    to.probes[i].place.first_range = first;
    to.probes[i].place.ranges = static_cast<std::uint32_t>(to.functions.size()) - first;
  }
  return to.probes.size() != first_probe;
}

std::expected<AllocationProbes, SystemError> find_allocation_probes(std::span<const std::uint32_t> processes,
                                                                    std::span<const std::uint32_t> children) {
  AllocationProbes found;
  for (const std::uint32_t tgid : processes)
    if (!add_process(tgid, found))
      return std::unexpected(
          SystemError{fmt::format("allocations of process {} cannot be recorded: no file that it runs has probes of "
                                  "{}, or a function malloc. Way out: record --alloc -- COMMAND",
                                  tgid, kProvider),
                      ENOENT, RefusalKind::kMissing});
  for (const std::uint32_t tgid : children)
    if (std::ranges::find(processes, tgid) == processes.end()) (void)add_process(tgid, found);
  return found;
}

}  // namespace windlass::profiler
