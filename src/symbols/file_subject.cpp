#include <elf.h>

#include <cerrno>
#include <cstring>

#include "base/mapped_file.h"
#include "formats/image/pe.h"
#include "os/mapped_files.h"
#include "symbols/subject.h"

namespace windlass::symbols {

namespace {

Expected<void> check_headers(int fd, std::uint64_t errno_if_unmapped) {
  const auto file = MappedFile::from_fd(fd);
  if (!file) return fail(ErrorCode::kSystem, "file cannot be mapped", 0, errno_if_unmapped);
  const auto magic = file->bytes().at<std::uint32_t>(0);
  if (magic && std::memcmp(&*magic, ELFMAG, SELFMAG) == 0) return {};
  if (!image::PeImage::sniff(file->bytes())) return fail(ErrorCode::kUnsupported, "file is neither ELF nor PE", 0);
  if (const auto image = image::PeImage::parse(file->bytes()); !image) return Failure(image.error());
  return {};
}

}  // namespace

Expected<std::unique_ptr<Subject>> FileSubject::open(const std::string& path, KnownModules& modules) {
  os::Descriptor file(os::open_regular(path));
  if (!file && errno == ENODEV) return fail(ErrorCode::kUnsupported, "not a regular file", 0);
  if (!file) return fail(ErrorCode::kSystem, "file cannot be opened", 0, static_cast<std::uint64_t>(errno));
  if (const auto readable = check_headers(file.get(), EINVAL); !readable) return Failure(readable.error());
  KnownModule* module = modules.of_file(std::move(file), path);
  if (!module->symbols.open()) return fail(ErrorCode::kMalformed, "headers of the ELF file cannot be read", 0);
  return std::make_unique<FileSubject>(module, modules.keep(path));
}

}  // namespace windlass::symbols
