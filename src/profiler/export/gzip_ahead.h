// What a gzip file holds, unpacked by a thread beside the one that reads it.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "profiler/export/gzip.h"
#include "windlass/bytes.h"
#include "windlass/error.h"

namespace windlass::exporter {

// The thread is at most kBlocks pieces ahead, so memory does not hold the whole content. A small file has no thread,
// nor has one for which none can be started. Used by one thread; reads `bytes` while it lives.
class GzipAhead {
 public:
  static constexpr std::size_t kBlock = std::size_t{256} << 10, kBlocks = 4;
  // Packed bytes that are worth a thread.
  static constexpr std::size_t kWorthAThread = std::size_t{1} << 20;

  GzipAhead(ByteView bytes, std::uint64_t max_bytes, std::size_t worth_a_thread = kWorthAThread);
  ~GzipAhead();
  GzipAhead(const GzipAhead&) = delete;
  GzipAhead& operator=(const GzipAhead&) = delete;

  // The next piece, of kBlock bytes at most, which stays until the next call; empty at the end. An error, those of
  // GzipReader, comes behind the bytes before it.
  [[nodiscard]] Expected<ByteView> next();

 private:
  struct Block {
    // No zeroes first: most files fill a few pages of one block.
    std::unique_ptr<std::byte[]> bytes = std::make_unique_for_overwrite<std::byte[]>(kBlock);
    Expected<std::size_t> size = std::size_t{0};
    void read(GzipReader& reader) { size = reader.read({bytes.get(), kBlock}); }
  };
  void unpack_all();

  GzipReader reader_;  // of the thread, if there is one
  std::array<Block, kBlocks> blocks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t made_ = 0, used_ = 0;  // blocks, under the mutex
  bool stopped_ = false;               // under the mutex
  bool holds_one_ = false;             // the caller has a block
  std::thread thread_;                 // last: it uses the others
};

}  // namespace windlass::exporter
