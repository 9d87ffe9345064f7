#include "runtimes/manager/mapped_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

namespace windlass::manager {

Expected<std::shared_ptr<const MappedTable>> MappedTable::open(int memfd) {
  struct stat status {};
  const int seals = ::fcntl(memfd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(memfd, &status) != 0)
    return fail(ErrorCode::kUnsupported, "code manager's memfd is none, or may shrink while it is read", 0);
  const auto size = static_cast<std::size_t>(status.st_size);
  void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED | MAP_NORESERVE, memfd, 0);
  if (mapped == MAP_FAILED)
    return fail(ErrorCode::kSystem, "code manager's memfd cannot be mapped", 0, static_cast<std::uint64_t>(errno));
  // A core file has what the manager has mapped.
  (void)::madvise(mapped, size, MADV_DONTDUMP);
  const std::span bytes(static_cast<const std::byte*>(mapped), size);
  const auto reader = CodeManagerReader::open(bytes);
  if (!reader) {
    ::munmap(mapped, size);
    return Failure(reader.error());
  }
  return std::make_shared<const MappedTable>(bytes, *reader);
}

MappedTable::~MappedTable() { ::munmap(const_cast<std::byte*>(mapping_.data()), mapping_.size()); }

}  // namespace windlass::manager
