#include "profiler/export/gzip_ahead.h"

#include <system_error>

namespace windlass::exporter {

GzipAhead::GzipAhead(ByteView bytes, std::uint64_t max_bytes, std::size_t worth_a_thread) : reader_(bytes, max_bytes) {
  if (bytes.size() < worth_a_thread) return;
  try {
    thread_ = std::thread([this] { unpack_all(); });
  } catch (const std::system_error&) {
    return;  // no more threads: the caller unpacks
  }
}

GzipAhead::~GzipAhead() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void GzipAhead::unpack_all() {
  for (std::uint64_t number = 0;; ++number) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopped_ || number - used_ < kBlocks; });
      if (stopped_) return;
    }
    Block& block = blocks_[number % kBlocks];
    block.read(reader_);
    const bool is_last = !block.size || *block.size == 0;
    {
      const std::lock_guard lock(mutex_);
      made_ = number + 1;
    }
    changed_.notify_all();
    if (is_last) return;
  }
}

Expected<ByteView> GzipAhead::next() {
  if (!thread_.joinable()) {
    Block& block = blocks_.front();
    block.read(reader_);
    if (!block.size) return Failure(block.size.error());
    return ByteView(block.bytes.get(), *block.size);
  }
  std::unique_lock lock(mutex_);
  if (holds_one_) {
    ++used_;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return used_ < made_; });
  const Block& block = blocks_[used_ % kBlocks];
  holds_one_ = block.size && *block.size != 0;  // the last one stays
  if (!block.size) return Failure(block.size.error());
  return ByteView(block.bytes.get(), *block.size);
}

}  // namespace windlass::exporter
