#include "profiler/samples/snapshot_memory.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "os/process_memory.h"

namespace windlass::profiler {
void SnapshotMemory::show(const RawSample& sample) {
  sample_ = &sample;
  reads_ = 0;
}

bool SnapshotMemory::read(std::uint64_t address, void* to, std::size_t size) const {
  const RawSample& sample = *sample_;
  const auto reads = [&](const MemoryCopy& copy) { return copy.read(address, to, size); };
  const std::span words(sample.words);
  return std::ranges::any_of(words.subspan(WL_PROBED_RETURN), reads) || reads(sample.stack) || reads(sample.second) ||
         reads(sample.code) || reads(sample.teb) || std::ranges::any_of(words.first(WL_PROBED_RETURN), reads);
}

bool SnapshotMemory::read_page(std::uint64_t address, std::span<std::byte, kPageSize> to) const {
  const LastPages::Key key{sample_->epoch, address, sample_->tgid};
  if (!os::read_memory(static_cast<pid_t>(sample_->tgid), address, to.data(), to.size()))
    return last_.find(key, sample_->time, to);
  last_.keep(key, sample_->time, to);
  return true;
}

// Null where it cannot be read, or too many have been.
const std::byte* SnapshotMemory::page_at(std::uint64_t address) const {
  const std::span known(known_, std::min(reads_, kKeptPages));
  const auto found = std::ranges::find(known, address, &Page::address);
  const bool is_new = found == known.end();
  const std::size_t index = is_new ? reads_ % kKeptPages : static_cast<std::size_t>(found - known.begin());
  std::byte* const bytes = pages_.get() + index * kPageSize;
  if (is_new) {
    if (reads_ == kMaxReads) return nullptr;
    ++reads_;
    known_[index] = {address, read_page(address, std::span<std::byte, kPageSize>(bytes, kPageSize))};
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
