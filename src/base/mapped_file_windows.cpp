#include "base/mapped_file.h"

#include <windows.h>

namespace windlass {
namespace {

Failure system_error(const char* what) { return fail(ErrorCode::kSystem, what, 0, GetLastError()); }

class OwnedHandle {
 public:
  explicit OwnedHandle(HANDLE handle) : handle_(handle) {}
  ~OwnedHandle() {
    if (*this) CloseHandle(handle_);
  }
  OwnedHandle(const OwnedHandle&) = delete;
  OwnedHandle& operator=(const OwnedHandle&) = delete;
  explicit operator bool() const { return handle_ != nullptr && handle_ != INVALID_HANDLE_VALUE; }
  [[nodiscard]] HANDLE get() const { return handle_; }

 private:
  HANDLE handle_;
};

// `path` is UTF-8. Longer than any path that CreateFileW takes without the \\?\ prefix.
constexpr int kLongestPath = 4096;

HANDLE open_file(const std::string& path) {
  wchar_t wide[kLongestPath];
  if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path.c_str(), -1, wide, kLongestPath) == 0)
    return INVALID_HANDLE_VALUE;
  return CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE, nullptr, OPEN_EXISTING,
                     FILE_ATTRIBUTE_NORMAL, nullptr);
}

Expected<std::size_t> disk_file_size(HANDLE file) {
  LARGE_INTEGER size;
  if (GetFileType(file) != FILE_TYPE_DISK) return fail(ErrorCode::kUnsupported, "not a regular file", 0);
  if (GetFileSizeEx(file, &size) == 0) return system_error("cannot stat the file");
  return static_cast<std::size_t>(size.QuadPart);
}

}  // namespace

// Nobody can truncate a file that is mapped, on this system.
Expected<MappedFile> MappedFile::open(const std::string& path) {
  const OwnedHandle handle(open_file(path));
  if (!handle) return system_error("cannot open the file");
  const auto size = disk_file_size(handle.get());
  if (!size) return Failure(size.error());
  MappedFile file;
  if (*size == 0) return file;
  const OwnedHandle mapping(CreateFileMappingW(handle.get(), nullptr, PAGE_READONLY, 0, 0, nullptr));
  file.data_ = mapping ? MapViewOfFile(mapping.get(), FILE_MAP_READ, 0, 0, *size) : nullptr;
  if (file.data_ == nullptr) return system_error("cannot map the file");
  file.size_ = *size;
  return file;
}

Expected<MappedFile> MappedFile::read(const std::string& path, std::size_t limit) {
  auto file = open(path);
  if (file && file->size_ > limit) return fail(ErrorCode::kLimit, "file larger than the limit", file->size_, limit);
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) UnmapViewOfFile(data_);
}

}  // namespace windlass
