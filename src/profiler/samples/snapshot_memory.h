// The memory of a sampled thread, as far as its sample holds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "profiler/samples/raw_event.h"
#include "windlass/walk.h"

namespace windlass::profiler {

// read() answers from the sample's copies alone: what was there when it was taken. read_code() reads the process, while
// it lives: code seldom changes, and pages of it that one sample needs are read once. Neither allocates. One thread.
class SnapshotMemory final : public Memory {
 public:
  static constexpr std::size_t kMaxPages = 64;  // of code that one sample may read from the process

  // What is read from here on; `sample` must stay until the next.
  void show(const RawSample& sample);

  bool read(std::uint64_t address, void* to, std::size_t size) const override;
  bool read_code(std::uint64_t address, void* to, std::size_t size) const override;

 private:
  static constexpr std::size_t kPageSize = 4096;  // the smallest there is
  struct Page {
    std::uint64_t address;
    bool readable;
  };
  [[nodiscard]] const std::byte* page_at(std::uint64_t address) const;

  const RawSample* sample_ = nullptr;
  // Of the process's code, in the order they were asked for; index i is at pages_[i * kPageSize].
  mutable Page known_[kMaxPages] = {};
  mutable std::size_t count_ = 0;
  std::unique_ptr<std::byte[]> pages_ = std::make_unique_for_overwrite<std::byte[]>(kMaxPages * kPageSize);
};

}  // namespace windlass::profiler
