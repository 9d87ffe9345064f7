#include "profiler/samples/alloc_library_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "os/descriptor.h"
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

// Can nobody else change what is there?
bool is_safe(const struct stat& status) {
  return (status.st_uid == geteuid() || status.st_uid == 0) && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool holds(const std::string& path, std::string_view content) {
  const os::Descriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) || !is_safe(status)) return false;
  if (static_cast<std::uint64_t>(status.st_size) != content.size()) return false;
  std::string found(content.size(), '\0');
  return pread(file.get(), found.data(), found.size(), 0) == static_cast<ssize_t>(found.size()) && found == content;
}

// Under another name first: programs that start meanwhile find a whole library or none.
int write_whole(const std::string& path, std::string_view content) {
  std::string made = path + ".XXXXXX";
  const os::Descriptor file(mkostemp(made.data(), O_CLOEXEC));
  if (!file) return errno;
  for (std::string_view left = content; !left.empty();) {
    const ssize_t count = write(file.get(), left.data(), left.size());
    if (count > 0) left.remove_prefix(static_cast<std::size_t>(count));
    if (count > 0 || (count < 0 && errno == EINTR)) continue;
    const int error = count < 0 ? errno : ENOSPC;
    unlink(made.c_str());
    return error;
  }
  if (fchmod(file.get(), 0644) == 0 && rename(made.c_str(), path.c_str()) == 0) return 0;
  const int error = errno;
  unlink(made.c_str());
  return error;
}

// Whatever the umask is, others may read them.
std::expected<void, SystemError> make_folders(const std::string& folder) {
  for (std::size_t end = folder.find('/', 1);; end = folder.find('/', end + 1)) {
    const std::string made = folder.substr(0, end);
    if (mkdir(made.c_str(), 0755) == 0)
      (void)chmod(made.c_str(), 0755);
    else if (errno != EEXIST)
      return std::unexpected(no_place(made, errno));
    if (end == std::string::npos) return {};
  }
}

std::expected<std::string, SystemError> cache_folder() {
  if (geteuid() == 0) return "/var/cache";
  for (const auto& [variable, below] : {std::pair{"XDG_CACHE_HOME", ""}, std::pair{"HOME", "/.cache"}}) {
    const char* const value = std::getenv(variable);
    if (value != nullptr && *value == '/') return std::string(value) + below;
  }
  return std::unexpected(no_place("HOME", "not set", ENOENT));
}

}  // namespace

std::expected<std::string, SystemError> alloc_library_file_in(const std::string& folder) {
  const auto library = unpacked();
  if (!library) return std::unexpected(library.error());
  if (folder.find_first_of(" :") != std::string::npos)  // they separate the names in LD_PRELOAD
    return std::unexpected(no_place(folder, "a space or a colon", EINVAL));
  if (auto made = make_folders(folder); !made) return std::unexpected(made.error());
  struct stat status {};
  if (lstat(folder.c_str(), &status) != 0) return std::unexpected(no_place(folder, errno));
  if (!S_ISDIR(status.st_mode) || !is_safe(status))
    return std::unexpected(no_place(folder, "others can change what is in it", EPERM));
  struct statvfs system {};
  if (statvfs(folder.c_str(), &system) == 0 && (system.f_flag & ST_NOEXEC) != 0)
    return std::unexpected(no_place(folder, "no program may run from this file system", EPERM));
  std::string path = fmt::format("{}/libwindlass_alloc-{:016x}.so", folder, std::hash<std::string_view>{}(*library));
  if (holds(path, *library)) return path;
  if (const int error = write_whole(path, *library); error != 0) return std::unexpected(no_place(path, error));
  return path;
}

std::expected<std::string, SystemError> alloc_library_file() {
  auto cache = cache_folder();
  if (!cache) return cache;
  return alloc_library_file_in(*cache + "/windlass");
}

}  // namespace windlass::profiler
