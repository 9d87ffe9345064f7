// Pages of code as they were read from processes last. A process may have ended when its last samples are unwound: its
// generated code is then found here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>

#include "profiler/samples/mix.h"

namespace windlass::profiler {

// One thread only.
class LastPages {
 public:
  static constexpr std::size_t kPageSize = 4096;
  static constexpr std::size_t kMost = 2048;                  // 8 MiB; those not used for the longest time go
  static constexpr std::uint64_t kHoldForNs = 1'000'000'000;  // generated code changes

  struct Key {
    std::uint64_t epoch;  // of the process, as events have it: pids are used again
    std::uint64_t address;
    std::uint32_t tgid;
    bool operator==(const Key&) const = default;
  };

  void keep(const Key& key, std::uint64_t time, std::span<const std::byte, kPageSize> bytes);
  // False if the page was not read within kHoldForNs before `time`.
  [[nodiscard]] bool find(const Key& key, std::uint64_t time, std::span<std::byte, kPageSize> to) const;

 private:
  struct Hash {
    std::size_t operator()(const Key& key) const { return mix(mix(key.epoch, key.tgid), key.address); }
  };
  struct Page {
    std::uint64_t time = 0;
    std::unique_ptr<std::byte[]> bytes;
  };
  using Pages = std::unordered_map<Key, Page, Hash>;

  Pages young_, old_;
};

}  // namespace windlass::profiler
