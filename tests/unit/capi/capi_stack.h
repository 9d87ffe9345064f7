// Three frames by frame pointers in generated code, made by hand.
#pragma once

#include <cstdint>
#include <cstring>

#include "windlass/c/windlass.h"

struct CapiStack {
  static constexpr std::uint64_t kBase = 0x7000;
  static constexpr std::uint64_t kCode = 0x1000;
  static constexpr std::uint64_t kPcs[] = {0x1010, 0x1100, 0x1200};

  std::uint64_t words[8] = {kBase + 0x20, 0x1100, 0, 0, 0, 0x1200, 0, 0};
  windlass_space* space = nullptr;
  int released = 0;

  static int read(void* user, std::uint64_t address, void* to, std::size_t length) {
    const auto& words = static_cast<const CapiStack*>(user)->words;
    if (address < kBase || length > sizeof words || address - kBase > sizeof words - length) return 0;
    std::memcpy(to, reinterpret_cast<const char*>(words) + (address - kBase), length);
    return 1;
  }
  static void release(void* user) { ++static_cast<CapiStack*>(user)->released; }

  CapiStack() {
    const windlass_memory memory{sizeof memory, read, release, this};
    windlass_open_callbacks(WINDLASS_X86_64, &memory, &space, nullptr);
    windlass_code code{};
    code.size = sizeof code;
    code.begin = kCode;
    code.end = 0x2000;
    windlass_add_code(space, &code, nullptr, nullptr);
  }
  ~CapiStack() { windlass_close(space); }
  CapiStack(const CapiStack&) = delete;
  CapiStack& operator=(const CapiStack&) = delete;

  [[nodiscard]] windlass_registers registers() const {
    windlass_registers registers;
    registers.size = sizeof registers;
    windlass_registers_init(&registers, WINDLASS_X86_64);
    windlass_set(&registers, 16, kPcs[0]);
    windlass_set(&registers, 6, kBase);
    windlass_set(&registers, 7, kBase);
    registers.flags = WINDLASS_RETURN_ADDRESS;
    return registers;
  }
};
