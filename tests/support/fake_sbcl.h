// An SBCL made up in memory: its exported variables, the assembler's routines, one code object with two functions, and
// their names. Its data lies in the first kDataSize bytes, the image behind.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "support/made_up_image.h"

namespace windlass::test::fake_sbcl {

inline constexpr std::uint64_t kBase = 0x51000000;
inline constexpr std::size_t kDataSize = 8192, kSize = 3 * 4096;
inline constexpr std::uint64_t kVariables = kBase, kRoutines = kBase + 64, kRoutinesEnd = kRoutines + 64;
inline constexpr std::uint64_t kPackages = kBase + 256, kPackage = kBase + 320, kSymbol = kBase + 384,
                               kList = kBase + 448, kSetf = kBase + 512, kStrings = kBase + 640;
inline constexpr std::uint64_t kImage = kBase + kDataSize;
// The code object. Its header, sizes, debug information and fixups, 4 constants of each function, the code.
inline constexpr std::uint64_t kObject = kBase + 4096 + 512, kBoxed = 12 * 8, kText = kObject + kBoxed, kFirst = 16,
                               kSecond = 128, kObjectSize = kBoxed + 192;
inline constexpr std::uint64_t kFunction = kText + kFirst + 16, kOther = kText + kSecond + 16;
inline constexpr std::uint8_t kCodeKind = 0x35, kFunctionKind = 0x41, kSymbolKind = 0x2d, kTextKind = 0xe1;
inline constexpr std::uint64_t kNil = 0x50000117;

class FakeMemory final : public MadeUpMemory {
 public:
  FakeMemory() : MadeUpMemory(kBase, kSize) {}

  template <std::size_t N>
  void put_code(std::uint64_t at, const std::uint8_t (&code)[N]) {
    for (std::size_t i = 0; i < N; ++i) put(at + i, code[i]);
  }
  // A string of Lisp; gives the pointer to it.
  std::uint64_t put_string(std::uint64_t at, std::string_view text) {
    put(at, std::uint64_t{kTextKind}), put(at + 8, std::uint64_t{2 * text.size()}),
        put_bytes(at + 16, std::string(text));
    return at + 15;
  }
  std::uint64_t put_symbol(std::uint64_t at, std::uint64_t package, std::uint64_t name) {
    put(at, std::uint64_t{kSymbolKind}), put(at + 40, package << 48 | name);
    return at + 15;
  }
  // A function's header leads back to its object.
  void put_function(std::uint64_t offset) {
    put(kText + offset, std::uint64_t{0x50101153} << 32 | (kBoxed + offset) / 8 << 8 | kFunctionKind);
  }
};

// Where the first function has what: offsets from kFunction.
inline constexpr std::uint64_t kCallAt = 21, kBehindCall = 23, kReturnAt = 28;

inline FakeMemory make() {
  FakeMemory memory;
  memory.put(kVariables, kRoutines), memory.put(kVariables + 8, kRoutinesEnd),
      memory.put(kVariables + 16, kPackages + 15);
  memory.put(kRoutines, std::uint64_t{kCodeKind});
  memory.put(kPackages + 8, std::uint64_t{2 * 2}), memory.put(kPackages + 16, kNil),
      memory.put(kPackages + 24, kPackage + 3);
  memory.put(kPackage + 8, memory.put_string(kStrings, "SB-IMPL"));
  // Names: SB-IMPL::FIND and (SETF SB-IMPL::FIND 7). SETF is in no package that is known.
  const std::uint64_t find = memory.put_symbol(kSymbol, 1, memory.put_string(kStrings + 32, "FIND"));
  const std::uint64_t setf = memory.put_symbol(kSetf, 0, memory.put_string(kStrings + 64, "SETF"));
  memory.put(kList, setf), memory.put(kList + 8, kList + 16 + 7);
  memory.put(kList + 16, find), memory.put(kList + 24, kList + 32 + 7);
  memory.put(kList + 32, std::uint64_t{2 * 7}), memory.put(kList + 40, kNil);
  memory.put(kObject, (kObjectSize / 8) << 32 | kCodeKind), memory.put(kObject + 8, kBoxed);
  memory.put(kObject + 4 * 8, find), memory.put(kObject + 8 * 8, kList + 7);
  memory.put_function(kFirst), memory.put_function(kSecond);
  const std::uint64_t end = kObject + kObjectSize;  // the table: the last function's offset first
  memory.put(end - 12, static_cast<std::uint32_t>(kSecond)), memory.put(end - 8, static_cast<std::uint32_t>(kFirst));
  memory.put(end - 4, static_cast<std::uint16_t>(2 << 5)), memory.put(end - 2, std::uint16_t{16});
  // pop [rbp + 8]; lea rsp, [rbp - 16]; sub rsp, 16; mov [rsp], rbp; mov rbp, rsp; xor ecx, ecx; nop; call rax;
  // mov rsp, rbp; clc; pop rbp; ret
  memory.put_code(kFunction, {0x8f, 0x45, 0x08, 0x48, 0x8d, 0x65, 0xf0, 0x48, 0x83, 0xec, 0x10, 0x48, 0x89, 0x2c, 0x24,
                              0x48, 0x8b, 0xec, 0x31, 0xc9, 0x90, 0xff, 0xd0, 0x48, 0x8b, 0xe5, 0xf8, 0x5d, 0xc3});
  // Of four values: mov rbp, [rbp]; push [rbx - 8]; ret
  memory.put_code(kOther, {0x8f, 0x45, 0x08, 0x48, 0x8b, 0x6d, 0x00, 0xff, 0x73, 0xf8, 0xc3});
  MadeUpImage image;
  image.add("asm_routines_start", kVariables), image.add("asm_routines_end", kVariables + 8);
  image.add("lisp_package_vector", kVariables + 16);
  image.put(memory, kImage);
  return memory;
}

}  // namespace windlass::test::fake_sbcl
