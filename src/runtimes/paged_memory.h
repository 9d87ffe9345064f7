// Memory that does not change and is read in pages, which are kept: what is read lies close together.
#pragma once

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
  static constexpr std::size_t kMaxPages = 1024;

  explicit PagedMemory(std::shared_ptr<const Memory> memory) : memory_(std::move(memory)) {}
  bool read(std::uint64_t address, void* to, std::size_t size) const override;

 private:
  static constexpr std::uint64_t kPage = 4096;
  using Page = std::array<std::byte, kPage>;
  [[nodiscard]] const Page* page_at(std::uint64_t address) const;

  std::shared_ptr<const Memory> memory_;
  mutable std::unordered_map<std::uint64_t, Page> pages_;
};

}  // namespace windlass::runtimes
