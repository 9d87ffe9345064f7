// Numbers that a file gives its things, to places in a vector.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "profiler/profile/profile.h"

namespace windlass::exporter {

// Ids of a pprof file are any non-zero 64-bit numbers; nearly always 1, 2, 3.
class IdMap {
 public:
  // False if the id is 0 or taken.
  bool add(std::uint64_t id, std::uint32_t index) {
    if (id == 0) return false;
    if (id == dense_ + 1 && index == dense_) {
      ++dense_;
      return true;
    }
    return (id > dense_) && others_.try_emplace(id, index).second;
  }
  [[nodiscard]] std::uint32_t find(std::uint64_t id) const {
    if (id != 0 && id <= dense_) return static_cast<std::uint32_t>(id - 1);
    const auto known = others_.find(id);
    return known == others_.end() ? profile::kNone : known->second;
  }

 private:
  std::uint64_t dense_ = 0;  // ids 1..dense_ are indexes 0..dense_-1
  std::unordered_map<std::uint64_t, std::uint32_t> others_;
};

}  // namespace windlass::exporter
