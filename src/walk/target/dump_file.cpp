#include "walk/target/dump_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <unistd.h>

#include "formats/image/decompress_stream.h"
#include "os/descriptor.h"

namespace windlass::walk {
namespace {

Failure system_error(const char* what) { return fail(ErrorCode::kSystem, what, 0, static_cast<std::uint64_t>(errno)); }

// -1 and errno: none can be made.
int open_nameless_file() {
  const char* wanted = std::getenv("TMPDIR");
  std::string folder = wanted != nullptr && *wanted != '\0' ? wanted : "/var/tmp";
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
  if (fd >= 0 || errno == ENOENT || errno == EACCES) return fd;
  folder += "/windlass-XXXXXX";  // a file system without O_TMPFILE
  const int named = ::mkostemp(folder.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(folder.c_str());
  return named;
}

class Unpacked {
 public:
  explicit Unpacked(int fd) : file_(fd) {}
  [[nodiscard]] bool is_open() const { return static_cast<bool>(file_); }

  Expected<void> take(ByteView piece) {
    if (size_ == 0 && dump_kind_of(piece) == DumpKind::kOther)
      return fail(ErrorCode::kUnsupported, "compressed, but neither a core file nor a minidump", 0);
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t size = std::min<std::size_t>(kPage, piece.size() - at);
      const std::byte* bytes = piece.data() + at;
      const bool empty = std::all_of(bytes, bytes + size, [](std::byte byte) { return byte == std::byte{0}; });
      if (!empty && ::pwrite(file_.get(), bytes, size, static_cast<off_t>(size_ + at)) != static_cast<ssize_t>(size))
        return system_error("cannot write the unpacked dump");
      at += size;
    }
    size_ += piece.size();
    return {};
  }

  Expected<MappedFile> map() const {
    if (::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) return system_error("cannot write the unpacked dump");
    return MappedFile::from_fd(file_.get());
  }

 private:
  static constexpr std::size_t kPage = 4096;
  os::Descriptor file_;
  std::uint64_t size_ = 0;
};

}  // namespace

DumpKind dump_kind_of(ByteView file) {
  constexpr std::uint32_t kElf = 0x464c457f;       // "\177ELF"
  constexpr std::uint32_t kMinidump = 0x504d444d;  // "MDMP"
  const auto magic = file.at<std::uint32_t>(0);
  if (!magic) return DumpKind::kOther;
  return *magic == kElf ? DumpKind::kCore : *magic == kMinidump ? DumpKind::kMinidump : DumpKind::kOther;
}

Expected<MappedFile> open_dump_file(const std::string& path, std::uint64_t limit) {
  auto file = MappedFile::open(path);
  if (!file || image::compression_of(file->bytes()) == image::Compression::kNone) return file;
  Unpacked unpacked(open_nameless_file());
  if (!unpacked.is_open()) return system_error("cannot make a file for the unpacked dump");
  const auto take = [&](ByteView piece) { return unpacked.take(piece); };
  if (const auto size = image::unpack(file->bytes(), limit, take); !size) return Failure(size.error());
  return unpacked.map();
}

}  // namespace windlass::walk
