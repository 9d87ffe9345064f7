#include <sys/mman.h>

#include "base/pages.h"

void* windlass::map_pages(std::size_t size) {
  void* pages = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return pages != MAP_FAILED ? pages : nullptr;
}

void windlass::unmap_pages(void* pages, std::size_t size) {
  if (pages != nullptr) ::munmap(pages, size);
}
