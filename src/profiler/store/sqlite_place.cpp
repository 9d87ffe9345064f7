#include "profiler/store/sqlite_place.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace windlass::store {

namespace {

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// 0, or the errno.
int refusal_of(const std::string& path, int mode) {
  return ::faccessat(AT_FDCWD, path.c_str(), mode, AT_EACCESS) == 0 ? 0 : errno;
}

Error place_error(const char* what) { return {ErrorCode::kSystem, what, 0, 0}; }

}  // namespace

Error explain_place(const std::string& path, bool write, const Error& error) {
  if (error.code != ErrorCode::kSystem || error.detail == EBUSY || error.detail == ENOSPC) return error;
  const int folder = refusal_of(folder_of(path), write ? W_OK | X_OK : X_OK);
  if (folder == ENOENT) return place_error("there is no such folder. Way out: make the folder of the store");
  if (folder == EROFS)
    return place_error("the store's folder is mounted for reading only. Way out: name a file in another folder");
  if (folder == EACCES)
    return place_error(
        "this user may not use the store's folder. Way out: run as the user who owns the folder, or name a file in "
        "another one");
  const int file = refusal_of(path, write ? R_OK | W_OK : R_OK);
  if (file == EROFS)
    return place_error("the store is mounted for reading only. Way out: name a file in another folder");
  if (file == EACCES)
    return place_error("the store is another user's. Way out: run as that user, or name another file");
  return error;
}

Expected<std::string> unchanging_uri(const std::string& path) {
  struct stat log {};
  if (::stat((path + "-wal").c_str(), &log) == 0 && log.st_size != 0)
    return Failure(
        place_error("the store has a log, FILE-wal, which cannot be read in this folder. Way out: run as the user who "
                    "owns the store, or copy FILE and FILE-wal into a folder of your own"));
  std::string uri = "file:";
  if (path.starts_with("//")) uri += "//";  // else what follows would be a host
  for (const char byte : path) {
    constexpr std::string_view kHex = "0123456789ABCDEF";
    if (byte != '%' && byte != '?' && byte != '#') {
      uri += byte;
      continue;
    }
    uri += '%';
    uri += kHex[static_cast<unsigned char>(byte) >> 4];
    uri += kHex[static_cast<unsigned char>(byte) & 15];
  }
  return uri + "?immutable=1";
}

}  // namespace windlass::store
