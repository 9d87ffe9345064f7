// Memory that is read in pages, which are kept for a while: a runtime's structures lie close together, and many frames
// lead to the same ones.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "windlass/walk.h"

namespace windlass::runtimes {

// One thread at a time. Bounds: kMaxPages, then all are forgotten. More than a page at once is read as it is.
class PagedMemory final : public Memory {
 public:
  static constexpr std::uint64_t kForever = ~std::uint64_t{0};
  static constexpr std::size_t kMaxPages = 1024;

  // Pages are kept for `lifetime` ns.
  explicit PagedMemory(std::shared_ptr<const Memory> memory, std::uint64_t lifetime = kForever)
      : memory_(std::move(memory)), lifetime_(lifetime) {}
  // The following reads are for an event at `time` (CLOCK_MONOTONIC, ns). Pages that were read earlier do not serve
  // these reads, since the process has gone on. For example, a method may have been compiled and called.
  void set_time(std::uint64_t time) const { needed_ = std::max(needed_, time); }
  bool read(std::uint64_t address, void* to, std::size_t size) const override;

 private:
  static constexpr std::uint64_t kPage = 4096;
  using Page = std::array<std::byte, kPage>;
  [[nodiscard]] const Page* page_at(std::uint64_t address) const;

  std::shared_ptr<const Memory> memory_;
  std::uint64_t lifetime_;
  mutable std::unordered_map<std::uint64_t, Page> pages_;
  mutable std::uint64_t oldest_ = 0;  // when the first of them was read
  mutable std::uint64_t needed_ = 0;
};

}  // namespace windlass::runtimes
