#include "profiler/samples/last_pages.h"

#include <cstring>

namespace windlass::profiler {

void LastPages::keep(const Key& key, std::uint64_t time, std::span<const std::byte, kPageSize> bytes) {
  auto known = young_.find(key);
  if (known == young_.end()) {
    if (young_.size() >= kMost / 2) old_ = std::exchange(young_, {});
    auto from = old_.extract(key);
    known = from.empty() ? young_.try_emplace(key).first : young_.insert(std::move(from)).position;
  }
  Page& page = known->second;
  if (page.bytes == nullptr) page.bytes = std::make_unique_for_overwrite<std::byte[]>(kPageSize);
  page.time = time;
  std::memcpy(page.bytes.get(), bytes.data(), kPageSize);
}

bool LastPages::find(const Key& key, std::uint64_t time, std::span<std::byte, kPageSize> to) const {
  for (const Pages* pages : {&young_, &old_}) {
    const auto known = pages->find(key);
    if (known == pages->end()) continue;
    const Page& page = known->second;
    if (time > page.time && time - page.time > kHoldForNs) return false;
    std::memcpy(to.data(), page.bytes.get(), kPageSize);
    return true;
  }
  return false;
}

}  // namespace windlass::profiler
