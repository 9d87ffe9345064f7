// A Mono made up in memory: its exported accessors, a domain with its table of methods, one method, one trampoline, and
// their names. Its data lies in the first kDataSize bytes, the image behind.
#pragma once

#include <array>
#include <cstdint>

#include "support/made_up_image.h"

namespace windlass::test::fake_mono {

inline constexpr std::uint64_t kBase = 0x100000;
inline constexpr std::size_t kDataSize = 4096, kSize = 3 * kDataSize;
inline constexpr std::uint64_t kDomain = kBase + 64, kTable = kBase + 1088, kChunk = kBase + 1152,
                               kMethodInfo = kBase + 1280, kTrampolineInfo = kBase + 1344, kMethod = kBase + 1408,
                               kClass = kBase + 1472, kTrampoline = kBase + 1536, kText = kBase + 1600,
                               kCode = kBase + 2048;
inline constexpr std::uint64_t kHandler = kCode + 24, kTrampolineCode = kCode + 32, kCodeEnd = kTrampolineCode + 32;
inline constexpr std::uint64_t kSpare = kBase + 3072;  // for what a test adds
inline constexpr std::uint64_t kImage = kBase + kDataSize, kAccessors = kImage + kDataSize, kAccessorSize = 32;

// Where the fields are, in the structures and in the accessors' code; the domain's pointer is the memory's first word.
inline constexpr std::uint8_t kCodeStart = 16, kCodeSize = 24, kKindByte = 28, kTrampolineBit = 4;
inline constexpr std::uint8_t kMethodName = 24, kMethodClass = 8;
inline constexpr std::uint8_t kClassName = 16, kClassNamespace = 24, kClassOuter = 32;
inline constexpr std::uint64_t kDomainTable = 24;

class FakeMemory final : public MadeUpMemory {
 public:
  FakeMemory() : MadeUpMemory(kBase, kSize) {}

  template <std::size_t N>
  void put_code(std::uint64_t at, const std::uint8_t (&code)[N]) {
    for (std::size_t i = 0; i < N; ++i) put(at + i, code[i]);
  }
  // MonoJitInfo. `method`: a trampoline's is its MonoTrampInfo; 0: a tombstone.
  void put_info(std::uint64_t at, std::uint64_t method, std::uint64_t begin, std::uint32_t size, std::uint8_t kind) {
    put(at, method), put(at + kCodeStart, begin), put(at + kCodeSize, size), put(at + kKindByte, kind);
  }
  // One of the table's chunks. `end`: of its last element's code.
  template <std::size_t N>
  void put_chunk(std::uint64_t at, std::uint64_t end, const std::array<std::uint64_t, N>& infos) {
    put(at + 4, std::uint32_t{N}), put(at + 8, end), put(at + 24, infos);
  }
  template <std::size_t N>
  void put_table(const std::array<std::uint64_t, N>& chunks) {
    put(kTable, kDomain), put(kTable + 8, std::uint32_t{N}), put(kTable + 16, chunks);
  }
};

// Every function is what runtimes/accessor.h, and Mono's reader for two of them, know them to be.
inline void put_exports(FakeMemory& memory) {
  MadeUpImage image;
  std::uint64_t next = kAccessors;
  const auto add = [&](std::string_view name, const auto& code) {
    image.add(name, next);
    memory.put_code(next, code);
    next += kAccessorSize;
  };
  const auto load = [&](std::string_view name, std::uint8_t field) {  // mov rax, [rdi + field]; ret
    const std::uint8_t code[] = {0x48, 0x8b, 0x47, field, 0xc3};
    add(name, code);
  };
  const auto guarded = [&](std::string_view name, std::uint8_t field) {  // push rbx; mov rbx, rdi; mov rax, [rbx + N]
    const std::uint8_t code[] = {0x53, 0x48, 0x89, 0xfb, 0x48, 0x8b, 0x43, field, 0x5b, 0xc3};
    add(name, code);
  };
  constexpr std::uint8_t kRootDomain[] = {0x48, 0x8b, 0x05, 0, 0, 0, 0, 0xc3};  // mov rax, [rip + N]; ret
  const std::uint64_t distance = next + 3;
  add("mono_get_root_domain", kRootDomain);
  memory.put(distance, static_cast<std::uint32_t>(kBase - (distance + 4)));
  load("mono_jit_info_get_code_start", kCodeStart), load("mono_jit_info_get_code_size", kCodeSize);
  // movzx eax, byte [rdi + N]; test al, async; jne; test al, is_trampoline; jne; mov rax, [rdi]; ret
  constexpr std::uint8_t kGetMethod[] = {0x0f, 0xb6,           0x47, kKindByte, 0xa8, 1,    0x75, 8,
                                         0xa8, kTrampolineBit, 0x75, 4,         0x48, 0x8b, 0x07, 0xc3};
  add("mono_jit_info_get_method", kGetMethod);
  load("mono_method_get_name", kMethodName), load("mono_method_get_class", kMethodClass);
  guarded("mono_class_get_name", kClassName), guarded("mono_class_get_namespace", kClassNamespace);
  load("mono_class_get_nesting_type", kClassOuter);
  image.put(memory, kImage);
}

inline FakeMemory make() {
  FakeMemory memory;
  memory.put(kBase, kDomain), memory.put(kDomain + kDomainTable, kTable);
  memory.put_table(std::array{kChunk});
  memory.put_chunk(kChunk, kCodeEnd, std::array{kMethodInfo, kTrampolineInfo});
  memory.put_info(kMethodInfo, kMethod, kCode, kTrampolineCode - kCode, 0);
  memory.put_info(kTrampolineInfo, kTrampoline, kTrampolineCode, kCodeEnd - kTrampolineCode, kTrampolineBit);
  memory.put(kMethod + kMethodClass, kClass), memory.put(kMethod + kMethodName, kText);
  memory.put(kClass + kClassName, kText + 8), memory.put(kClass + kClassNamespace, kText + 16);
  memory.put(kTrampoline, kTrampolineCode), memory.put(kTrampoline + 16, kText);
  memory.put_bytes(kText, {"method\0\0Class\0\0\0Space", 21});
  // push rbp; mov rbp, rsp; sub rsp, 16; xor eax, eax; leave; ret; and behind it, where no way leads to, inc rax; ret
  memory.put_code(kCode, {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0x31, 0xc0, 0xc9, 0xc3});
  memory.put_code(kHandler, {0x48, 0xff, 0xc0, 0xc3});
  memory.put_code(kTrampolineCode, {0x41, 0x5b, 0x41, 0xff, 0xe3});  // pop r11; jmp r11
  put_exports(memory);
  return memory;
}

}  // namespace windlass::test::fake_mono
