// The stacks of a pprof file's samples, read by a thread beside the one that takes the file apart.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <protozero/data_view.hpp>
#include <string>
#include <thread>
#include <vector>

#include "profiler/export/page_buffer.h"
#include "profiler/export/pprof_stacks.h"
#include "windlass/error.h"

namespace windlass::exporter {

inline constexpr const char* kDamagedPprof = "not a pprof message (damaged protocol buffer)";
inline constexpr const char* kTooManyItems = "profile has more items than the limit";
inline constexpr const char* kNoSuchString = "string index past the string table";
inline constexpr const char* kNoMemory = "out of memory";

// Takes lists of location ids in batches. The thread is at most kBatches batches behind. What it finds does not depend
// on whether there is a thread: without one, or where none can be started, the caller reads each batch.
class PprofStackQueue {
 public:
  // `most_items`: of all items together, those of `items` below and of the stacks.
  PprofStackQueue(PprofStacks& stacks, std::uint64_t most_items, bool by_thread);
  ~PprofStackQueue();
  PprofStackQueue(const PprofStackQueue&) = delete;
  PprofStackQueue& operator=(const PprofStackQueue&) = delete;

  // Ids of the sample at hand, behind those before. Throws a protozero::exception if the last one is cut off.
  void add(protozero::data_view ids);
  // The sample at hand is whole. `at`: its offset in the message. `items`: counted so far, without stacks.
  void end_sample(std::uint64_t at, std::uint64_t items);
  // There are no more samples. Everything below but is_full() is for behind it. Has no effect the second time.
  void finish();

  // Further samples are not read.
  [[nodiscard]] bool is_full() const { return full_.load(std::memory_order_relaxed); }
  // Why not all were read: of the first sample that is damaged or beyond the limit.
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  [[nodiscard]] std::uint64_t items() const { return (stacks_.nodes() - 1) * kItemsOfNode; }
  struct Found {
    SampleStack stack;
    std::uint32_t behind = 0;  // bytes of the message since the sample before it
  };
  // `sample`: its number.
  [[nodiscard]] Found of(std::size_t sample) const;

 private:
  static constexpr std::size_t kBatches = 4, kBatchBytes = std::size_t{64} << 10, kItemsOfNode = 8, kAhead = 16;
  struct Sample {
    std::uint32_t size = 0;  // of its ids
    std::uint64_t at = 0, items = 0;
  };
  struct Batch {
    std::string ids;
    std::vector<Sample> samples;
  };
  void read_all();
  void hand_over();
  void read(const Batch& batch);
  void read_lists(const Batch& batch, std::size_t& number);
  void take(const PprofStacks::List& list, const Sample& sample);
  void fail_at(ErrorCode code, const char* what, std::uint64_t at, std::uint64_t detail = 0);

  PprofStacks& stacks_;  // of the thread, until finish()
  const std::uint64_t most_items_;
  PageBuffer found_;      // of each sample
  std::uint64_t at_ = 0;  // of the last sample in found_
  std::optional<Error> error_;
  std::atomic<bool> full_ = false;
  std::array<Batch, kBatches> batches_;
  std::size_t begun_ = 0;  // bytes of ids before the sample at hand
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t made_ = 0, used_ = 0;  // batches, under the mutex
  bool ended_ = false;                 // under the mutex: no further batch comes
  std::thread thread_;                 // last: it uses the others
};

}  // namespace windlass::exporter
