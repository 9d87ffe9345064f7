#include "profiler/import/perf_code.h"

#include <elf.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

#include "os/kallsyms.h"
#include "os/mapped_files.h"

namespace windlass::importer {
namespace {

// As perf names what is in no file.
bool is_anonymous(std::string_view path) {
  return path.empty() || path.starts_with("//") || path.starts_with("/memfd:") || path.starts_with("/dev/") ||
         path.starts_with("/SYSV") || path.starts_with("/anon_hugepage") || path.starts_with("anon_inode:") ||
         (path.starts_with('[') && path != "[vdso]");
}

std::string default_cache() {
  const char* home = std::getenv("HOME");
  return home != nullptr && *home != '\0' ? fmt::format("{}/.debug", home) : std::string();
}

// The build id in the notes that the running kernel shows. Empty: it shows none.
std::string running_kernel_build_id() {
  std::array<std::byte, 4096> notes;
  std::FILE* file = std::fopen("/sys/kernel/notes", "re");
  if (file == nullptr) return {};
  const std::size_t size = std::fread(notes.data(), 1, notes.size(), file);
  std::fclose(file);
  const ByteView bytes(notes.data(), size);
  for (std::uint64_t at = 0; at < size;) {
    const auto note = bytes.at<Elf64_Nhdr>(at);
    if (!note) return {};
    const std::uint64_t id = at + sizeof(Elf64_Nhdr) + ((note->n_namesz + 3) & ~3u);
    const auto content = bytes.sub(id, note->n_descsz);
    if (note->n_type == NT_GNU_BUILD_ID && content) {
      std::string text;
      for (std::size_t i = 0; i < content->size(); ++i) text += fmt::format("{:02x}", content->u8()[i]);
      return text;
    }
    at = id + ((note->n_descsz + 3) & ~3u);
  }
  return {};
}

}  // namespace

std::uint64_t PerfCodeFile::bias_of(const PerfMapping& mapping) const {
  if (generated) return 0;
  const auto page_size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const auto address = image ? image->address_of_file_offset(mapping.file_offset, true, page_size) : std::nullopt;
  return mapping.begin - address.value_or(mapping.file_offset);
}

PerfCode::PerfCode(const PerfFile& file, ProfileBuilder& builder, PerfFilePlaces places)
    : file_(file), builder_(builder), places_(std::move(places)) {
  if (places_.cache.empty()) places_.cache = default_cache();
  profile::Module kernel{.path = "[kernel]", .is_kernel = true};
  for (const char* name : {"[kernel.kallsyms]", "[guest.kernel.kallsyms]"})
    if (const auto id = file.build_ids.find(name); id != file.build_ids.end() && kernel.build_id.empty())
      kernel.build_id = id->second;
  kernel_ = builder.add_module(std::move(kernel));
}

bool PerfCode::is_running_kernel(std::uint64_t text) const {
  const std::string& recorded = builder_.edit().modules[kernel_].build_id;
  utsname running{};
  ::uname(&running);
  // perf leaves the build id out of streams and of compressed recordings.
  if (recorded.empty() ? file_.release != running.release : recorded != running_kernel_build_id()) return false;
  // It may have moved since (KASLR).
  if (text == 0) return !recorded.empty();
  return text == os::find_kernel_symbol(places_.kallsyms, "_text") ||
         text == os::find_kernel_symbol(places_.kallsyms, "_stext");
}

bool PerfCode::were_writing(std::span<const std::uint64_t> kernel) const {
  if (!writers_) writers_.emplace(places_.kallsyms);
  return writers_->were_writing(kernel);
}

const PerfCodeFile& PerfCode::of(const PerfMapping& mapping, const PerfProcesses& processes, std::uint32_t pid) {
  const PerfMappedFile& mapped = processes.files()[mapping.file];
  const bool generated = is_anonymous(mapped.path);
  const std::uint64_t key = generated ? std::uint64_t{1} << 63 | pid : mapping.file;
  std::unique_ptr<PerfCodeFile>& known = files_[key];
  if (known != nullptr) return *known;
  known = std::make_unique<PerfCodeFile>();
  known->generated = generated;
  profile::Module module{.path = generated ? "[anon]" : mapped.path, .pid = generated ? pid : 0};
  if (!generated && places_.open) open(mapped, *known, module);
  known->module = builder_.add_module(std::move(module));
  return *known;
}

void PerfCode::open(const PerfMappedFile& mapped, PerfCodeFile& to, profile::Module& module) {
  os::FileIdentity wanted = mapped.identity;
  if (const auto id = file_.build_ids.find(mapped.path); id != file_.build_ids.end() && wanted.build_id.empty())
    wanted.build_id = id->second;
  module.build_id = wanted.build_id;
  constexpr std::string_view kDeleted = " (deleted)";
  const std::string path =
      mapped.path.ends_with(kDeleted) ? mapped.path.substr(0, mapped.path.size() - kDeleted.size()) : mapped.path;
  std::vector<std::string> places;
  if (path.starts_with('/')) places.push_back(path);
  if (wanted.build_id.size() > 2 && !places_.cache.empty())
    for (const char* name : {"elf", "vdso"})
      places.push_back(fmt::format("{}/.build-id/{}/{}/{}", places_.cache, wanted.build_id.substr(0, 2),
                                   wanted.build_id.substr(2), name));
  // An old record of a mapping tells nothing but the path.
  const bool certain = wanted.build_id.empty() && wanted.inode == 0;
  auto found =
      std::ranges::find_if(places, [&](const std::string& place) { return try_path(place, wanted, certain, to); });
  if (found != places.end()) module.open_path = *found;
  if (!to.image && !(path == "[vdso]" && open_vdso(wanted.build_id, to))) return;
  module.build_id = to.image->build_id();
  to.source = sources::make_source(*to.image);
  to.machine = image::machine_of(to.file.bytes());
  if (const auto segments = to.image->executable_segments(); !segments.empty()) {
    module.begin = segments.front().vaddr;
    module.end = segments.front().vaddr + segments.front().memsz;
    module.file_offset = segments.front().file_offset;
  }
}

bool PerfCode::try_path(const std::string& path, const os::FileIdentity& wanted, bool certain, PerfCodeFile& to) {
  const os::OpenedRegular opened = os::open_regular(os::FileCandidate{.path = path});
  if (!opened.file) return false;
  auto file = MappedFile::from_fd(opened.file.get());
  if (!file) return false;
  auto image = image::ElfImage::parse(file->bytes());
  if (!image) return false;
  const auto same = os::compare(wanted, image->build_id(), opened.status.st_ino);
  if (same != os::Sameness::kSame && !(same == os::Sameness::kUnknown && certain)) return false;
  to.file = std::move(*file);
  to.image = std::move(*image);
  return true;
}

// The running kernel's, if it is the one that was mapped.
bool PerfCode::open_vdso(const std::string& wanted, PerfCodeFile& to) const {
  const int fd = os::open_vdso();
  if (fd < 0) return false;
  auto file = MappedFile::from_fd(fd);
  ::close(fd);
  if (!file) return false;
  auto image = image::ElfImage::parse(file->bytes());
  if (!image || (wanted.empty() ? !is_running_kernel(0) : image->build_id() != wanted)) return false;
  to.file = std::move(*file);
  to.image = std::move(*image);
  return true;
}

}  // namespace windlass::importer
