#include "profiler/doctor/no_allocations.h"

#include <elf.h>
#include <sys/stat.h>

#include <string_view>

#include "base/mapped_file.h"
#include "formats/image/elf.h"

namespace windlass::profiler {
namespace {

#if defined(__x86_64__)
constexpr image::Machine kOwnMachine = image::Machine::kX86_64;
#else
constexpr image::Machine kOwnMachine = image::Machine::kAArch64;
#endif

// The loader's path; empty where the program needs none.
std::string_view loader_of(const image::ElfImage& image) {
  for (const image::Segment& segment : image.segments()) {
    if (segment.type != PT_INTERP) continue;
    const auto bytes = image.at_address(segment.vaddr, segment.filesz);
    if (!bytes) return {};
    const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    return text.substr(0, text.find('\0'));
  }
  return {};
}

}  // namespace

std::optional<PreloadObstacle> preload_obstacle(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!file) return std::nullopt;
  const auto image = image::ElfImage::parse(file->bytes());
  if (!image) return std::nullopt;  // a script, for example
  if (image->machine() != kOwnMachine) return PreloadObstacle{"it is a program for another machine"};
  const std::string_view loader = loader_of(*image);
  if (loader.empty()) return PreloadObstacle{"it is statically linked"};
  if (loader.find("ld-musl") != loader.npos)
    return PreloadObstacle{"it is made for musl, and libwindlass_alloc.so for glibc", true};
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && (status.st_mode & (S_ISUID | S_ISGID)) != 0)
    return PreloadObstacle{"it is set-user-ID or set-group-ID, and nothing is preloaded into such programs"};
  return std::nullopt;
}

std::string_view managed_heap_of(const std::string& path) {
  const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
  if (name == "libjvm.so") return "Java";
  if (name == "libcoreclr.so") return ".NET";
  if (name == "node" || name.starts_with("libnode.so")) return "JavaScript";
  if (name.find(".so") != name.npos) return {};
  const auto file = MappedFile::open(path);
  if (!file) return {};
  const auto image = image::ElfImage::parse(file->bytes());
  if (!image) return {};
  for (const char* section : {".gopclntab", ".data.rel.ro.gopclntab"})  // the second one if position-independent
    if (image->section(section) != nullptr) return "Go";
  return {};
}

}  // namespace windlass::profiler
