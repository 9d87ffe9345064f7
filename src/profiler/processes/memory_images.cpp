#include "profiler/processes/memory_images.h"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/monotonic.h"
#include "os/process_memory.h"
#include "walk/target/memory_image.h"

namespace windlass::profiler {
namespace {

bool is_one_file(const os::ProcMap& a, const os::ProcMap& b) { return a.path == b.path && a.file == b.file; }

// Where the file's first byte is mapped, below the mapping and next to it; null: nowhere. perf's event does not always
// say what /proc does of the file: what is at the address decides.
const os::ProcMap* first_of_file(const std::vector<os::ProcMap>& maps, const os::ProcMap& map) {
  auto at = std::ranges::upper_bound(maps, map.begin, {}, &os::ProcMap::begin);
  if (at == maps.begin() || !at[-1].has_file()) return nullptr;
  const os::ProcMap& code = at[-1];
  if (map.begin >= code.end || (map.file.inode != 0 && map.file.inode != code.file.inode)) return nullptr;
  while (at != maps.begin()) {
    --at;
    if (at->path.empty()) continue;  // its program has put other memory there
    if (!is_one_file(*at, code)) return nullptr;
    if (at->offset == 0) return &*at;
  }
  return nullptr;
}

// Do the headers put code where the mapping is?
bool has_code_at(const walk::LoadedHeaders& headers, const os::ProcMap& map) {
  return std::ranges::any_of(headers.segments, [&](const image::Segment& segment) {
    return segment.type == PT_LOAD && (segment.flags & PF_X) != 0 && segment.vaddr + headers.bias < map.end &&
           map.begin < segment.vaddr + headers.bias + segment.memsz;
  });
}

// Tells one image from another of its name and number, as far as its headers do: a mount that ends gives its device's
// number away.
std::string identity_of(const walk::LoadedHeaders& headers) {
  if (!headers.build_id.empty()) return headers.build_id;
  std::string text = fmt::format("{:x}", headers.entry);
  for (const image::Segment& segment : headers.segments)
    if (segment.type == PT_LOAD) text += fmt::format(" {:x} {:x}", segment.vaddr, segment.filesz);
  return text;
}

}  // namespace

const std::vector<os::ProcMap>& MemoryImages::maps_of(std::uint32_t tgid) {
  const std::uint64_t now = monotonic_ns();
  if (tgid == last_ && now - last_time_ < kMoment) return maps_;
  std::string text;
  maps_.clear();
  if (ProcessTable::read_proc_maps(tgid, text)) maps_ = os::parse_proc_maps(text);
  last_ = tgid;
  last_time_ = now;
  return maps_;
}

std::optional<MemoryImages::Found> MemoryImages::find(std::uint32_t tgid, const os::ProcMap& map) {
  const os::ProcMap* first = first_of_file(maps_of(tgid), map);
  struct stat owner {};
  if (first == nullptr || ::stat(fmt::format("/proc/{}", tgid).c_str(), &owner) != 0) return std::nullopt;
  const auto headers = walk::read_loaded_headers(os::MemoryFile(static_cast<pid_t>(tgid)), first->begin);
  if (!headers || !has_code_at(*headers, map)) return std::nullopt;
  return Found{tgid, first->begin,
               fmt::format("memory of {}: {} {}:{}:{} {}", owner.st_uid, first->path, first->file.major,
                           first->file.minor, first->file.inode, identity_of(*headers))};
}

std::optional<OpenedFile> MemoryImages::read(const Found& found) {
  const auto bytes = walk::read_memory_image(os::MemoryFile(static_cast<pid_t>(found.tgid)), found.base);
  if (!bytes || bytes->size() > kMostBytes - bytes_) return std::nullopt;
  auto opened = open_memory_file(os::open_in_memory(bytes->data(), bytes->size()), found.content);
  if (opened) bytes_ += bytes->size();
  return opened;
}

}  // namespace windlass::profiler
