// Shared by the emulators of PE images: the image and a stack in memory of this process, an arena to which registers
// can point, and values that never repeat.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include <sys/mman.h>
#include <unicorn/unicorn.h>

#include "formats/image/pe.h"
#include "support/pe_layout.h"

namespace windlass::test {

// Pages of this process that the emulator shares.
class SharedPages {
 public:
  explicit SharedPages(std::uint64_t size)
      : size_((size + 0xffff) & ~std::uint64_t{0xffff}),
        bytes_(static_cast<std::uint8_t*>(
            ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}
  ~SharedPages() { ::munmap(bytes_, size_); }
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;
  [[nodiscard]] std::uint8_t* bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }

 private:
  std::uint64_t size_;
  std::uint8_t* bytes_;
};

// The stack, as memory for unwinders: nothing else is readable.
class StackMemory {
 public:
  static constexpr std::uint64_t kBase = 0x7ff0'0000'0000, kSize = std::uint64_t{16} << 20;
  static constexpr std::uint64_t kTop = kBase + kSize - 0x10000;  // where calls from nowhere begin

  StackMemory() : pages_(kSize) {}

  [[nodiscard]] bool read(std::uint64_t address, void* to, std::size_t size) const {
    if (address < kBase || size > kSize || address - kBase > kSize - size) return false;
    std::memcpy(to, pages_.bytes() + (address - kBase), size);
    return true;
  }
  bool write(std::uint64_t address, std::uint64_t value) {
    if (address < kBase || address - kBase > kSize - sizeof value) return false;
    std::memcpy(pages_.bytes() + (address - kBase), &value, sizeof value);
    return true;
  }
  [[nodiscard]] std::uint8_t* bytes() { return pages_.bytes(); }

 private:
  SharedPages pages_;
};

class EmulatorCore {
 public:
  static constexpr std::uint64_t kArena = 0x2000'0000'0000, kArenaSize = std::uint64_t{1} << 20;
  static constexpr std::uint64_t kTop = StackMemory::kTop;

  EmulatorCore(const EmulatorCore&) = delete;
  EmulatorCore& operator=(const EmulatorCore&) = delete;

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] std::uint64_t base() const { return base_; }
  [[nodiscard]] StackMemory& stack() { return stack_; }
  std::uint64_t random() { return random_(); }

 protected:
  EmulatorCore(uc_arch architecture, uc_mode mode, const image::PeImage& image)
      : base_(image.image_base()), image_(image.image_size()), random_(4711) {
    lay_out(image, image_.bytes(), image_.size());
    if (uc_open(architecture, mode, &engine_) != UC_ERR_OK) return;
    ok_ = uc_mem_map_ptr(engine_, base_, image_.size(), UC_PROT_ALL, image_.bytes()) == UC_ERR_OK &&
          uc_mem_map_ptr(engine_, StackMemory::kBase, StackMemory::kSize, UC_PROT_READ | UC_PROT_WRITE,
                         stack_.bytes()) == UC_ERR_OK &&
          map(kArena, kArenaSize);
  }
  ~EmulatorCore() {
    if (engine_ != nullptr) uc_close(engine_);
  }
  // Memory of the emulator's own, zeroes.
  bool map(std::uint64_t address, std::uint64_t size) {
    return uc_mem_map(engine_, address, size, UC_PROT_READ | UC_PROT_WRITE) == UC_ERR_OK;
  }

  std::uint64_t base_;
  SharedPages image_;
  StackMemory stack_;
  std::mt19937_64 random_;
  uc_engine* engine_ = nullptr;
  bool ok_ = false;
};

}  // namespace windlass::test
