#include "runtimes/paged_memory.h"

#include <algorithm>
#include <cstring>

namespace windlass::runtimes {

bool PagedMemory::read(std::uint64_t address, void* to, std::size_t size) const {
  if (size > kPage) return memory_->read(address, to, size);
  auto* out = static_cast<std::byte*>(to);
  while (size > 0) {
    const std::uint64_t at = address % kPage;
    const std::size_t part = std::min<std::size_t>(size, kPage - at);
    const Page* page = page_at(address - at);
    if (page == nullptr) return false;
    std::memcpy(out, page->data() + at, part);
    out += part;
    address += part;
    size -= part;
  }
  return true;
}

const PagedMemory::Page* PagedMemory::page_at(std::uint64_t address) const {
  if (const auto known = pages_.find(address); known != pages_.end()) return &known->second;
  if (pages_.size() >= kMaxPages) pages_.clear();
  const auto read = pages_.try_emplace(address).first;
  if (memory_->read(address, read->second.data(), kPage)) return &read->second;
  pages_.erase(read);
  return nullptr;
}

}  // namespace windlass::runtimes
