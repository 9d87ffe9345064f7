// Generated code in a heap of its own: functions with a frame of any size that call another function.
#pragma once

#include <windows.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "windlass/jit/registration.h"

namespace windlass::test {

class JitHeap {
 public:
  static constexpr std::uint32_t kCallSize = 30, kReturnOffset = 20;  // of put_call()'s code; of the call's end

  explicit JitHeap(std::uint64_t size = 4 << 20, DWORD protection = PAGE_EXECUTE_READWRITE)
      : size_(size),
        memory_(static_cast<std::uint8_t*>(VirtualAlloc(nullptr, size, MEM_RESERVE | MEM_COMMIT, protection))) {}
  ~JitHeap() { VirtualFree(memory_, 0, MEM_RELEASE); }
  JitHeap(const JitHeap&) = delete;
  JitHeap& operator=(const JitHeap&) = delete;

  [[nodiscard]] std::uint64_t begin() const { return reinterpret_cast<std::uint64_t>(memory_); }
  [[nodiscard]] std::uint64_t end() const { return begin() + size_; }
  [[nodiscard]] RegistrarOptions options() const { return {.folder = {}, .heap_begin = begin(), .heap_end = end()}; }

  void put(std::uint64_t offset, const std::vector<std::uint8_t>& code) {
    std::memcpy(memory_ + offset, code.data(), code.size());
    FlushInstructionCache(GetCurrentProcess(), memory_ + offset, code.size());
  }
  // push rbx; sub rsp, frame; mov rax, target; call rax; nop; add rsp, frame; pop rbx; ret. Its arguments are passed
  // on, and what that returns. Returns its address.
  std::uint64_t put_call(std::uint64_t offset, std::uint64_t target, std::uint32_t frame = 32) {
    std::vector<std::uint8_t> code = {0x53, 0x48, 0x81, 0xec, 0,    0,    0,    0,    0x48, 0xb8, 0, 0, 0, 0,    0,
                                      0,    0,    0,    0xff, 0xd0, 0x90, 0x48, 0x81, 0xc4, 0,    0, 0, 0, 0x5b, 0xc3};
    std::memcpy(&code[4], &frame, 4);
    std::memcpy(&code[10], &target, 8);
    std::memcpy(&code[24], &frame, 4);
    put(offset, code);
    return begin() + offset;
  }
  static Prologue call_prologue(std::uint32_t frame = 32) {
    Prologue f{.architecture = Architecture::kX86_64, .code_size = kCallSize};
    f.ops = {{1, prologue::push(3)}, {8, prologue::Allocate{frame}}};
    f.epilogues = {{.begin = 21, .end = 30, .undone = {{28, prologue::Allocate{frame}}, {29, prologue::push(3)}}}};
    return f;
  }

 private:
  std::uint64_t size_;
  std::uint8_t* memory_;
};

}  // namespace windlass::test
