#include "os/cache_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "os/write_all.h"

namespace windlass::os {
namespace {

constexpr unsigned kMostNames = 1000;

// A new file, whose name goes to `name`.
Descriptor make_unfinished(int folder, std::string& name) {
  static std::atomic<unsigned> count = 0;
  const std::string wanted = std::move(name);
  for (unsigned tries = 0; tries < kMostNames; ++tries) {
    name = fmt::format("{}.{}-{}{}", wanted, ::getpid(), count++, kUnfinished);
    Descriptor file(::openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (file || errno != EEXIST) return file;
  }
  return {};
}

}  // namespace

std::string cache_home() {
  if (::geteuid() == 0) return "/var/cache";
  for (const auto& [variable, below] : {std::pair{"XDG_CACHE_HOME", ""}, std::pair{"HOME", "/.cache"}}) {
    const char* const value = std::getenv(variable);
    if (value != nullptr && *value == '/') return std::string(value) + below;
  }
  return {};
}

bool is_own_alone(const struct stat& status) {
  return (status.st_uid == ::geteuid() || status.st_uid == 0) && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::expected<Descriptor, FolderError> make_own_folder(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string made = path.substr(0, end);
    if (::mkdir(made.c_str(), 0755) == 0)
      (void)::chmod(made.c_str(), 0755);
    else if (errno != EEXIST)
      return std::unexpected(FolderError{made, errno});
    if (end == std::string::npos) break;
  }
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  const bool opened = folder && ::fstat(folder.get(), &status) == 0;
  if (!opened && errno != ENOTDIR && errno != ELOOP) return std::unexpected(FolderError{path, errno});
  if (!opened || !is_own_alone(status)) return std::unexpected(FolderError{path, EPERM});
  return folder;
}

Descriptor open_own_file(int folder, const std::string& name, struct stat& status) {
  Descriptor file(::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file || ::fstat(file.get(), &status) != 0) return {};
  if (S_ISREG(status.st_mode) && is_own_alone(status)) return file;
  errno = EPERM;
  return {};
}

int write_whole(int folder, const std::string& name, std::span<const std::string_view> parts, mode_t mode) {
  std::string unfinished = name;
  const Descriptor file = make_unfinished(folder, unfinished);
  if (!file) return errno;
  int error = 0;
  for (const std::string_view part : parts)
    if (error == 0 && !write_all(file.get(), part)) error = errno;
  if (error == 0 &&
      (::fchmod(file.get(), mode) != 0 || ::renameat(folder, unfinished.c_str(), folder, name.c_str()) != 0))
    error = errno;
  if (error != 0) ::unlinkat(folder, unfinished.c_str(), 0);
  return error;
}

}  // namespace windlass::os
