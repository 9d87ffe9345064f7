// What the kernel says of one mapping of an open /proc/PID/maps, without the text: PROCMAP_QUERY (Linux 6.11).
// Signal-safe.
#pragma once

#include <sys/ioctl.h>

#include <cstdint>

namespace windlass::os {

// struct procmap_query of <linux/fs.h>, newer than many systems' headers.
struct ProcmapQuery {
  std::uint64_t size, query_flags, query_addr, vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
  std::uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
  std::uint64_t vma_name_addr, build_id_addr;
};

// PROCMAP_QUERY_*: in `query_flags` only mappings that have all of them are meant; in `vma_flags` the first ones.
constexpr std::uint64_t kQueryReadable = 1, kQueryExecutable = 4, kQueryShared = 8;
constexpr std::uint64_t kQueryOrNext = 16, kQueryFileBacked = 32;

// The mapping of an address. False: errno is ENOENT where there is none, ESRCH of memory that is gone with its process;
// with others the kernel does not say.
[[nodiscard]] inline bool query_mapping(int maps, std::uint64_t address, std::uint64_t flags, ProcmapQuery& found) {
  found = {};
  found.size = sizeof found;
  found.query_flags = flags;
  found.query_addr = address;
  return ::ioctl(maps, _IOWR('f', 17, ProcmapQuery), &found) == 0;
}

}  // namespace windlass::os
