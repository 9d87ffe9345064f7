// A process's memory made up by hand: one range of bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "windlass/walk.h"

namespace windlass::test {

class MadeUpMemory : public Memory {
 public:
  MadeUpMemory(std::uint64_t base, std::size_t size) : bytes(size), base_(base) {}
  std::vector<std::uint8_t> bytes;

  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    if (address < base_ || address - base_ > bytes.size() || size > bytes.size() - (address - base_)) return false;
    if (size != 0) std::memcpy(to, bytes.data() + (address - base_), size);
    return true;
  }
  template <typename T>
  void put(std::uint64_t address, T value) {
    std::memcpy(bytes.data() + (address - base_), &value, sizeof value);
  }
  void put_bytes(std::uint64_t address, std::string_view text) {
    std::memcpy(bytes.data() + (address - base_), text.data(), text.size());
  }

 private:
  std::uint64_t base_;
};

}  // namespace windlass::test
