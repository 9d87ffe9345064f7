#include "symbols/known_modules.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mapped_file.h"
#include "formats/image/pe.h"
#include "os/mapped_files.h"

namespace windlass::symbols {

namespace {

// Written over in place, a file is another one; its name says nothing.
std::string identity_of(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return {};
  return fmt::format("{}:{} {} {}.{}", status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec);
}

std::string build_id_in(int fd) {
  const auto file = MappedFile::from_fd(fd);
  if (!file) return {};
  if (const auto elf = image::ElfImage::parse(file->bytes())) return elf->build_id();
  const auto pe = image::PeImage::parse(file->bytes());
  return pe ? pe->build_id() : std::string();
}

std::string path_of(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

}  // namespace

KnownModule* KnownModules::add(std::string key, profile::Module module, os::Descriptor file) {
  const auto [entry, is_new] = modules_.try_emplace(std::move(key));
  if (is_new) entry->second = std::make_unique<KnownModule>(std::move(module), std::move(file), options_);
  return entry->second.get();
}

KnownModule* KnownModules::of_file(os::Descriptor file, const std::string& path) {
  std::string key = identity_of(file.get());
  if (const auto known = modules_.find(key); known != modules_.end()) return known->second.get();
  profile::Module module{.path = path, .open_path = path_of(file.get()), .build_id = build_id_in(file.get())};
  return add(std::move(key), std::move(module), std::move(file));
}

KnownModule* KnownModules::of_build_id(const std::string& build_id, const std::string& path) {
  return add("id " + build_id, {.path = path, .build_id = build_id});
}

KnownModule* KnownModules::of_perf_map(os::Descriptor file, std::uint64_t process) {
  profile::Module module{.path = "[anon]", .open_path = path_of(file.get())};
  module.pid = static_cast<std::uint32_t>(process);
  // By its inode alone: it grows.
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return nullptr;
  return add(fmt::format("map {}:{}", status.st_dev, status.st_ino), std::move(module), std::move(file));
}

KnownModule* KnownModules::of_own_vdso() { return add("vdso", {.path = "[vdso]"}); }

KnownModule* KnownModules::of_image(ByteView bytes, const std::string& path) {
  os::Descriptor file(os::open_in_memory(bytes.data(), bytes.size()));
  return file ? of_file(std::move(file), path) : nullptr;
}

}  // namespace windlass::symbols
