#include "profiler/processes/code_file.h"

#include <elf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "formats/go/goroutine_labels.h"
#include "formats/go/rows.h"
#include "profiler/processes/thread_context.h"
#include "runtimes/find.h"

namespace windlass::profiler {
namespace {

// A user's file may carry the build id of root's, with other code: the owner tells. Only time and size identify the
// content of a file without a build id. (A PE image's CodeView identity is the PDB file's: two images may share it.)
std::string content_of(const struct stat& status, const std::string& build_id) {
  if (!build_id.empty()) return fmt::format("id {} of {} {}", build_id, status.st_uid, status.st_size);
  return fmt::format("inode {}:{} {}.{} {}", status.st_dev, status.st_ino, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec, status.st_size);
}

void parse(OpenedFile& opened) {
  const ByteView bytes = opened.file.bytes();
  if (auto image = image::ElfImage::parse(bytes)) {
    opened.image = std::move(*image);
  } else if (auto pe = image::PeImage::parse(bytes)) {
    opened.pe = std::move(*pe);
  } else {
    opened.problem = image::PeImage::sniff(bytes) ? pe.error().text() : image.error().text();
  }
}

std::optional<OpenedFile> look_at(os::OpenedRegular& regular, const os::FileCandidate& candidate) {
  OpenedFile opened;
  const struct stat& status = regular.status;
  auto file = MappedFile::from_fd(regular.file.get());
  if (!file) return std::nullopt;
  opened.inode = status.st_ino;
  opened.file = std::move(*file);
  parse(opened);
  const std::string build_id = opened.image ? opened.image->build_id() : std::string();
  // Something else may be mapped there by now, even where map_files leads.
  const auto same = os::compare({.inode = candidate.inode, .build_id = {}}, build_id, status.st_ino);
  if (same == os::Sameness::kOther || (same == os::Sameness::kUnknown && !candidate.certain)) return std::nullopt;
  // A copy in memory, of a file of a server, is another file.
  struct stat now {};
  if (::fstat(regular.file.get(), &now) == 0 && now.st_dev == status.st_dev && now.st_ino == status.st_ino)
    opened.key = TableKey::of(status, build_id);
  opened.content = content_of(status, build_id);
  opened.fd = regular.file.release();
  return opened;
}

// Where in the image the section is that holds this byte of the file.
std::optional<std::uint64_t> rva_of_file_offset(const image::PeImage& image, std::uint64_t offset) {
  for (const image::PeSection& section : image.sections())
    if (offset >= section.file_offset && offset - section.file_offset < section.file_size)
      return section.rva + (offset - section.file_offset);
  return std::nullopt;
}

// An image as it would be in memory, at the addresses that it is linked to.
class ImageMemory final : public Memory {
 public:
  explicit ImageMemory(const image::ElfImage& image) : image_(image) {}
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    const auto bytes = image_.at_address(address, size);
    if (bytes) std::copy_n(bytes->data(), size, static_cast<std::byte*>(to));
    return bytes.has_value();
  }

 private:
  const image::ElfImage& image_;
};

// Where its first byte would be.
std::optional<std::uint64_t> base_of(const image::ElfImage& image) {
  const auto& segments = image.segments();
  const auto first = std::ranges::find(segments, std::uint32_t{PT_LOAD}, &image::Segment::type);
  return first != segments.end() ? std::optional(first->vaddr - first->offset) : std::nullopt;
}

// Offsets that do not fit are none that a Go program has.
wl_label_source goroutines_of(const image::ElfImage& image) {
  const auto found = runtimes::go::find_goroutine_labels(image);
  constexpr std::uint64_t kMost = 0xffff;
  if (!found || found->m > kMost || found->current > kMost) return {};
  wl_label_source source{};
  source.kind = found->slice ? WL_LABELS_GO_SLICE : WL_LABELS_GO_MAP;
  source.go = {found->first, static_cast<__u16>(found->m), static_cast<__u16>(found->current),
               static_cast<__u16>(found->labels), 0};
  return source;
}

dwarf::ThreadSlot thread_slot_of(const image::PeImage& image) {
  const auto table = runtimes::go::find_table(image);
  if (!table || table->architecture != Architecture::kX86_64) return {};
  const auto way = runtimes::go::GoRows(*table, image).way_back();
  return way ? way->slot : dwarf::ThreadSlot{};
}

}  // namespace

std::optional<OpenedFile> open_code_file(const std::vector<os::FileCandidate>& candidates) {
  std::optional<OpenedFile> file;
  os::take_first(candidates, [&](os::OpenedRegular& opened, const os::FileCandidate& candidate) {
    file = look_at(opened, candidate);
    return file.has_value();
  });
  return file;
}

std::optional<OpenedFile> open_memory_file(int fd, std::string content) {
  if (fd < 0) return std::nullopt;
  OpenedFile opened;
  opened.fd = fd;
  opened.content = std::move(content);
  if (auto file = MappedFile::from_fd(fd)) opened.file = std::move(*file);
  parse(opened);
  return opened;
}

CodeFile::CodeFile() = default;
CodeFile::~CodeFile() {
  if (fd >= 0) close(fd);
}

void CodeFile::take(OpenedFile opened, std::string from_path) {
  path = std::move(from_path);
  inode = opened.inode;
  key = opened.key;
  file = std::move(opened.file);
  image = std::move(opened.image);
  pe = std::move(opened.pe);
  machine = image::machine_of(file.bytes());
  if (pe) {
    build_id = pe->build_id();
    thread_slot = thread_slot_of(*pe);
    const auto sections = pe->sections();
    if (const auto code = std::ranges::find_if(sections, &image::PeSection::executable); code != sections.end()) {
      code_begin = code->rva;
      code_end = std::uint64_t{code->rva} + code->virtual_size;
      code_offset = code->file_offset;
    }
  }
  if (image) {
    build_id = image->build_id();
    const auto base = base_of(*image);
    has_interpreter = base && runtimes::has_interpreter(ImageMemory(*image), *base);
    has_thread_context = base && profiler::has_thread_context(ImageMemory(*image), *base);
    goroutines = goroutines_of(*image);
    if (const auto segments = image->executable_segments(); !segments.empty()) {
      code_begin = segments.front().vaddr;
      code_end = segments.front().vaddr + segments.front().memsz;
      code_offset = segments.front().file_offset;
    }
  }
}

std::uint64_t CodeFile::thread_slot_at(std::uint64_t bias) const {
  return thread_slot.variable != 0 ? thread_slot.variable + bias : thread_slot.offset;
}

void CodeFile::drop() {
  state = TableState::kDropped;
  source.reset();  // it and the images point into `file`
  image.reset();
  pe.reset();
  file = MappedFile();
}

void CodeFile::let_go_of_pages() const {
  const ByteView bytes = file.bytes();
  if (!bytes.empty()) madvise(const_cast<std::byte*>(bytes.data()), bytes.size(), MADV_DONTNEED);
}

ProcessTable::CodeLocation CodeFile::place(const os::ProcMap& map) const {
  if (pe) {
    const auto rva = rva_of_file_offset(*pe, map.offset);
    // Its headers, as ModuleRegistry::find_images asks, or not as its section table says.
    if (!rva) return {number, map.begin, MappingKind::kGenerated, true};
    ProcessTable::CodeLocation location{number, map.begin - *rva, MappingKind::kFile, true};
    location.thread_slot = thread_slot_at(location.bias);
    return location;
  }
  if (!image) return {number, 0, MappingKind::kGenerated};
  const auto page_size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const auto address = image->address_of_file_offset(map.offset, true, page_size);
  if (!address) return {};  // mapped executable, but not as its program headers say
  return {.module = number,
          .bias = map.begin - *address,
          .kind = MappingKind::kFile,
          .interpreter = has_interpreter,
          .thread_context = has_thread_context,
          .goroutines = goroutines};
}

void CodeFile::describe(profile::Module& module) const {
  module.path = path;
  module.build_id = build_id;
  if (fd >= 0) module.open_path = fmt::format("/proc/self/fd/{}", fd);
  module.begin = code_begin;
  module.end = code_end;
  module.file_offset = code_offset;
}

}  // namespace windlass::profiler
