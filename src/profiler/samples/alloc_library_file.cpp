#include "profiler/samples/alloc_library_file.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "os/cache_folder.h"
#include "profiler/export/gzip.h"
#include "profiler/samples/alloc_library.h"

namespace windlass::profiler {
namespace {

constexpr std::uint64_t kMostLibrary = std::uint64_t{64} << 20;  // bytes

SystemError no_place(const std::string& path, const char* why, int error) {
  return SystemError{fmt::format("{}: {}: the library that counts allocations cannot be kept there. Way out: set "
                                 "XDG_CACHE_HOME to a folder of your own, on a file system that programs may run from",
                                 path, why),
                     error, RefusalKind::kMissing};
}
SystemError no_place(const std::string& path, int error) { return no_place(path, std::strerror(error), error); }

std::expected<std::string, SystemError> unpacked() {
  const std::span<const std::byte> packed = alloc_library();
  if (packed.empty())
    return std::unexpected(SystemError{
        "this build has no libwindlass_alloc.so. Way out: build Windlass with WINDLASS_SHARED and no sanitizers", 0,
        RefusalKind::kMissing});
  auto library = exporter::gunzip({packed.data(), packed.size()}, kMostLibrary);
  if (!library) return std::unexpected(system_error("libwindlass_alloc.so: damaged in this program", EBADMSG));
  return std::string(reinterpret_cast<const char*>(library->data()), library->size());
}

bool holds(int folder, const std::string& name, std::string_view content) {
  struct stat status {};
  const os::Descriptor file = os::open_own_file(folder, name, status);
  if (!file || static_cast<std::uint64_t>(status.st_size) != content.size()) return false;
  std::string found(content.size(), '\0');
  return pread(file.get(), found.data(), found.size(), 0) == static_cast<ssize_t>(found.size()) && found == content;
}

}  // namespace

std::expected<std::string, SystemError> alloc_library_file_in(const std::string& folder) {
  const auto library = unpacked();
  if (!library) return std::unexpected(library.error());
  if (folder.find_first_of(" :") != std::string::npos)  // they separate the names in LD_PRELOAD
    return std::unexpected(no_place(folder, "a space or a colon", EINVAL));
  const auto opened = os::make_own_folder(folder);
  if (!opened) {
    const auto& [path, error] = opened.error();
    return std::unexpected(error == EPERM ? no_place(path, "others can change what is in it", error)
                                          : no_place(path, error));
  }
  struct statvfs system {};
  if (fstatvfs(opened->get(), &system) == 0 && (system.f_flag & ST_NOEXEC) != 0)
    return std::unexpected(no_place(folder, "no program may run from this file system", EPERM));
  const std::string name = fmt::format("libwindlass_alloc-{:016x}.so", std::hash<std::string_view>{}(*library));
  std::string path = fmt::format("{}/{}", folder, name);
  if (holds(opened->get(), name, *library)) return path;
  const std::string_view content = *library;
  if (const int error = os::write_whole(opened->get(), name, {&content, 1}, 0644); error != 0)
    return std::unexpected(no_place(path, error));
  return path;
}

std::expected<std::string, SystemError> alloc_library_file() {
  const std::string cache = os::cache_home();
  if (cache.empty()) return std::unexpected(no_place("HOME", "not set", ENOENT));
  return alloc_library_file_in(cache + "/windlass");
}

}  // namespace windlass::profiler
