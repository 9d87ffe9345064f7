#include "base/mapped_file.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace windlass {
namespace {

Failure system_error(const char* what) { return fail(ErrorCode::kSystem, what, 0, static_cast<std::uint64_t>(errno)); }

class Descriptor {
 public:
  // O_NONBLOCK: opening a FIFO somebody put in the way must not hang.
  explicit Descriptor(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

Expected<std::size_t> regular_file_size(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return system_error("cannot stat the file");
  if (!S_ISREG(status.st_mode)) return fail(ErrorCode::kUnsupported, "not a regular file", 0);
  return static_cast<std::size_t>(status.st_size);
}

}  // namespace

Expected<MappedFile> MappedFile::from_fd(int fd) {
  const auto size = regular_file_size(fd);
  if (!size) return Failure(size.error());
  MappedFile file;
  if (*size == 0) return file;
  void* data = ::mmap(nullptr, *size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) return system_error("cannot map the file");
  file.data_ = data;
  file.size_ = *size;
  return file;
}

namespace {
MappedFile::Opener opener = nullptr;
}  // namespace

void MappedFile::set_opener(Opener to) { opener = to; }

Expected<MappedFile> MappedFile::open(const std::string& path) {
  if (opener != nullptr) return opener(path);
  const Descriptor fd(path);
  if (fd.get() < 0) return system_error("cannot open the file");
  return from_fd(fd.get());
}

Expected<MappedFile> MappedFile::read(const std::string& path, std::size_t limit) {
  const Descriptor fd(path);
  if (fd.get() < 0) return system_error("cannot open the file");
  const auto size = regular_file_size(fd.get());
  if (!size) return Failure(size.error());
  if (*size > limit) return fail(ErrorCode::kLimit, "file larger than the limit", *size, limit);
  MappedFile file;
  if (*size == 0) return file;
  void* data = ::mmap(nullptr, *size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return system_error("cannot allocate memory for the file");
  file.data_ = data;
  file.size_ = *size;
  std::size_t done = 0;
  while (done < *size) {
    const ssize_t got = ::pread(fd.get(), static_cast<char*>(data) + done, *size - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("cannot read the file");
    if (got == 0) break;  // truncated meanwhile: the rest reads as zeroes
    done += static_cast<std::size_t>(got);
  }
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace windlass
