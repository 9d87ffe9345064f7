// Files that this user keeps between runs, in folders that nobody else can change.
#pragma once

#include <sys/stat.h>

#include <expected>
#include <span>
#include <string>
#include <string_view>

#include "os/descriptor.h"

namespace windlass::os {

// The folder for caches: /var/cache for root, else $XDG_CACHE_HOME or ~/.cache. Empty: neither variable is an absolute
// path.
[[nodiscard]] std::string cache_home();

// Can nobody but this user and root change what is there?
[[nodiscard]] bool is_own_alone(const struct stat& status);

struct FolderError {
  std::string path;
  int error = 0;  // errno; EPERM: others can change what is in it
};
// Opens a folder. Makes it first, with those above it, of mode 0755 whatever the umask is. A symbolic link in the place
// of the folder itself is not followed.
[[nodiscard]] std::expected<Descriptor, FolderError> make_own_folder(const std::string& path);

// A file in such a folder, to be read. None: errno says why, EPERM that others can change it or that it is no file.
// Does not wait for anybody, and follows no symbolic link.
[[nodiscard]] Descriptor open_own_file(int folder, const std::string& name, struct stat& status);

// Writes the parts one after the other. Under another name first, so that others find a whole file or none. Also an
// older file with that name is replaced. errno, or 0.
[[nodiscard]] int write_whole(int folder, const std::string& name, std::span<const std::string_view> parts,
                              mode_t mode);
// The end of such other names: what a program left that was killed while it wrote.
inline constexpr std::string_view kUnfinished = ".new";

}  // namespace windlass::os
