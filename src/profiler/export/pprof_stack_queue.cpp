#include "profiler/export/pprof_stack_queue.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <protozero/exception.hpp>
#include <system_error>
#include <utility>

namespace windlass::exporter {

PprofStackQueue::PprofStackQueue(PprofStacks& stacks, std::uint64_t most_items, bool by_thread)
    : stacks_(stacks), most_items_(most_items) {
  if (!by_thread) return;
  try {
    thread_ = std::thread([this] { read_all(); });
  } catch (const std::system_error&) {
    return;  // no more threads: the caller reads
  }
}

PprofStackQueue::~PprofStackQueue() {
  full_.store(true, std::memory_order_relaxed);
  finish();
}

void PprofStackQueue::add(protozero::data_view ids) {
  if (ids.empty()) return;
  if ((ids.data()[ids.size() - 1] & 0x80) != 0) throw protozero::end_of_buffer_exception();
  batches_[made_ % kBatches].ids.append(ids.data(), ids.size());
}

void PprofStackQueue::end_sample(std::uint64_t at, std::uint64_t items) {
  Batch& batch = batches_[made_ % kBatches];
  batch.samples.push_back({static_cast<std::uint32_t>(batch.ids.size() - begun_), at, items});
  begun_ = batch.ids.size();
  if (begun_ + batch.samples.size() * sizeof(Sample) >= kBatchBytes) hand_over();
}

// The batch at hand.
void PprofStackQueue::hand_over() {
  if (thread_.joinable()) {
    std::unique_lock lock(mutex_);
    ++made_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return made_ - used_ < kBatches; });
  } else {
    read(batches_[made_ % kBatches]);
  }
  begun_ = 0;
  batches_[made_ % kBatches].ids.clear();
  batches_[made_ % kBatches].samples.clear();
}

void PprofStackQueue::finish() {
  Batch& last = batches_[made_ % kBatches];
  last.ids.resize(begun_);  // without a sample that is damaged
  if (!last.samples.empty()) hand_over();
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void PprofStackQueue::read_all() {
  for (std::uint64_t number = 0;; ++number) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ended_ || number < made_; });
      if (number == made_) return;
    }
    read(batches_[number % kBatches]);
    {
      const std::lock_guard lock(mutex_);
      used_ = number + 1;
    }
    changed_.notify_all();
  }
}

void PprofStackQueue::read(const Batch& batch) {
  std::size_t number = 0;
  try {
    read_lists(batch, number);
  } catch (const protozero::exception&) {
    fail_at(ErrorCode::kMalformed, kDamagedPprof, batch.samples[number].at);
  } catch (const std::bad_alloc&) {
    fail_at(ErrorCode::kLimit, kNoMemory, batch.samples[number].at);
  }
}

// `number`: of the sample that is read, for one that throws.
void PprofStackQueue::read_lists(const Batch& batch, std::size_t& number) {
  std::array<PprofStacks::List, kAhead> begun;
  const std::size_t samples = batch.samples.size();
  std::size_t ids = 0, begun_to = 0;
  for (number = 0; number < samples && !is_full(); ++number) {
    for (; begun_to < std::min(number + kAhead, samples); ++begun_to) {
      const std::size_t size = batch.samples[begun_to].size;
      begun[begun_to % kAhead] = stacks_.begin({batch.ids.data() + ids, size});
      ids += size;
    }
    take(begun[number % kAhead], batch.samples[number]);
  }
}

void PprofStackQueue::take(const PprofStacks::List& list, const Sample& sample) {
  const std::uint64_t before = items() + sample.items;
  const std::uint64_t most = most_items_ - std::min(before, most_items_);
  const SampleStack stack = stacks_.take(list, most);
  if (stack.size > most || items() + sample.items > most_items_)
    return fail_at(ErrorCode::kLimit, kTooManyItems, sample.at, most_items_);
  const Found found{.stack = stack, .behind = static_cast<std::uint32_t>(sample.at - std::exchange(at_, sample.at))};
  if (!found_.append(&found, sizeof found)) throw std::bad_alloc();
}

void PprofStackQueue::fail_at(ErrorCode code, const char* what, std::uint64_t at, std::uint64_t detail) {
  error_ = Error{code, what, at, detail};
  full_.store(true, std::memory_order_relaxed);
}

PprofStackQueue::Found PprofStackQueue::of(std::size_t sample) const {
  Found found;
  std::memcpy(&found, found_.data() + sample * sizeof found, sizeof found);
  return found;
}

}  // namespace windlass::exporter
