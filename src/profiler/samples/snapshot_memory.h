// The memory of a sampled thread, as far as its sample holds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "profiler/samples/last_pages.h"
#include "profiler/samples/raw_event.h"
#include "windlass/walk.h"

namespace windlass::profiler {

// read() answers from the sample's copies alone: what was there when it was taken. read_code() reads the process: code
// seldom changes, and pages of it that one sample needs are read once. Where the process does not answer, or has ended,
// the page counts that was read for a sample shortly before. One thread.
class SnapshotMemory final : public Memory {
 public:
  // Of code: how many pages are kept at a time, and how many one sample may read from the process in all.
  static constexpr std::size_t kKeptPages = 64, kMaxReads = 1024;

  // What is read from here on; `sample` must stay until the next.
  void show(const RawSample& sample);

  bool read(std::uint64_t address, void* to, std::size_t size) const override;
  bool read_code(std::uint64_t address, void* to, std::size_t size) const override;

 private:
  static constexpr std::size_t kPageSize = LastPages::kPageSize;  // the smallest there is
  struct Page {
    std::uint64_t address;
    bool readable;
  };
  [[nodiscard]] const std::byte* page_at(std::uint64_t address) const;
  [[nodiscard]] bool read_page(std::uint64_t address, std::span<std::byte, kPageSize> to) const;

  const RawSample* sample_ = nullptr;
  // Of the process's code; index i is at pages_[i * kPageSize]. The one that was read first makes room for a new one.
  mutable Page known_[kKeptPages] = {};
  mutable std::size_t reads_ = 0;
  mutable LastPages last_;
  std::unique_ptr<std::byte[]> pages_ = std::make_unique_for_overwrite<std::byte[]>(kKeptPages * kPageSize);
};

}  // namespace windlass::profiler
