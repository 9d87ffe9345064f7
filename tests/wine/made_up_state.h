// Registers and a stack as no program has them. All words differ, and nearly all are addresses within the stack. So an
// unwinder can read through any of them that it takes for a frame pointer.
#pragma once

#include <windows.h>

#include <cstdint>
#include <cstring>

namespace windlass::test {

class MadeUpStack {
 public:
  static constexpr std::uint64_t kSize = std::uint64_t{128} << 20;  // frames of the corpora have up to 34 MiB
  static constexpr std::uint64_t kFilled = std::uint64_t{2} << 20;  // around the middle; zeroes elsewhere

  MadeUpStack()
      : memory_(static_cast<std::uint8_t*>(VirtualAlloc(nullptr, kSize, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE))) {
    for (std::uint64_t at = middle() - kFilled / 2; at < middle() + kFilled / 2; at += 8) {
      const std::uint64_t value = address_for(at);
      std::memcpy(reinterpret_cast<void*>(at), &value, sizeof value);
    }
  }
  ~MadeUpStack() { VirtualFree(memory_, 0, MEM_RELEASE); }
  MadeUpStack(const MadeUpStack&) = delete;
  MadeUpStack& operator=(const MadeUpStack&) = delete;

  [[nodiscard]] bool ok() const { return memory_ != nullptr; }
  [[nodiscard]] std::uint64_t middle() const { return reinterpret_cast<std::uint64_t>(memory_) + kSize / 2; }
  [[nodiscard]] bool holds(std::uint64_t address, std::uint64_t size) const {
    const std::uint64_t offset = address - reinterpret_cast<std::uint64_t>(memory_);
    return offset < kSize && size <= kSize - offset;
  }
  bool read(std::uint64_t address, void* to, std::size_t size) const {
    if (!holds(address, size)) return false;
    std::memcpy(to, reinterpret_cast<const void*>(address), size);
    return true;
  }
  // An address in the filled part, another one for every seed.
  [[nodiscard]] std::uint64_t address_for(std::uint64_t seed) const {
    return middle() - kFilled / 4 + ((seed * 0x9e3779b97f4a7c15) >> 20) % (kFilled / 2 / 8) * 8;
  }

 private:
  std::uint8_t* memory_;
};

inline CONTEXT made_up_context(const MadeUpStack& stack, std::uint64_t seed) {
  CONTEXT context{};
  context.ContextFlags = CONTEXT_FULL;
  DWORD64* const integer = &context.Rax;
  for (unsigned i = 0; i < 16; ++i) integer[i] = stack.address_for(seed * 16 + i);
  context.Rsp = stack.middle() + (seed & 0xff) * 16 + 8;  // as after a call
  for (unsigned i = 0; i < 16; ++i) (&context.Xmm0)[i] = {seed * 32 + i, static_cast<LONGLONG>(~seed * 64 + i)};
  return context;
}

}  // namespace windlass::test
