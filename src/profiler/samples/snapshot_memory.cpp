#include "profiler/samples/snapshot_memory.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "os/process_memory.h"

namespace windlass::profiler {
void SnapshotMemory::show(const RawSample& sample) {
  sample_ = &sample;
  count_ = 0;
}

bool SnapshotMemory::read(std::uint64_t address, void* to, std::size_t size) const {
  const RawSample& sample = *sample_;
  const auto reads = [&](const MemoryCopy& copy) { return copy.read(address, to, size); };
  const std::span words(sample.words);
  return std::ranges::any_of(words.subspan(WL_PROBED_RETURN), reads) || reads(sample.stack) || reads(sample.second) ||
         reads(sample.code) || reads(sample.teb) || std::ranges::any_of(words.first(WL_PROBED_RETURN), reads);
}

// Null where it cannot be read, or too many have been.
const std::byte* SnapshotMemory::page_at(std::uint64_t address) const {
  const auto known = std::find_if(known_, known_ + count_, [&](const Page& page) { return page.address == address; });
  const auto index = static_cast<std::size_t>(known - known_);
  std::byte* const bytes = pages_.get() + index * kPageSize;
  if (index == count_) {
    if (count_ == kMaxPages) return nullptr;
    known_[count_++] = {address, os::read_memory(static_cast<pid_t>(sample_->tgid), address, bytes, kPageSize)};
  }
  return known_[index].readable ? bytes : nullptr;
}

bool SnapshotMemory::read_code(std::uint64_t address, void* to, std::size_t size) const {
  for (std::size_t done = 0; done < size;) {
    const std::uint64_t within = (address + done) % kPageSize;
    const std::byte* page = page_at(address + done - within);
    if (page == nullptr) return false;
    const std::size_t piece = std::min<std::size_t>(size - done, kPageSize - within);
    std::memcpy(static_cast<std::byte*>(to) + done, page + within, piece);
    done += piece;
  }
  return true;
}

}  // namespace windlass::profiler
