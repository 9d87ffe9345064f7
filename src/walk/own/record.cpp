#include "walk/own/record.h"

#include "walk/own/memory.h"

namespace windlass::walk {
namespace {

constexpr std::size_t kRecords = 64;  // 40 KiB each, touched when used
constinit WalkRecord records[kRecords];

}  // namespace

[[gnu::hot]] WalkRecord* WalkRecord::acquire() {
  const std::uint64_t thread = thread_pointer();
  WalkRecord& record = records[(thread >> 6 ^ thread >> 12 ^ thread >> 20) % kRecords];
  if (record.busy_.exchange(true, std::memory_order_acquire)) return nullptr;
  record.start();
  return &record;
}

void WalkRecord::prepare() {
  WalkRecord* const record = acquire();
  if (record == nullptr) return;
  record->limit_ = kCapacity;
  for (RecordedFrame& frame : record->frames_) {
    volatile std::uint64_t& key = frame.key;
    key = key;
  }
  record->release();
}

}  // namespace windlass::walk
