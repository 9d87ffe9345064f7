// A process made up in memory that has registered two objects with GDB, each of two functions.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "jit/registries/gdb_object.h"
#include "support/made_up_memory.h"
#include "windlass/backtrace.h"
#include "windlass/prologue.h"

namespace windlass::test::fake_gdb {

inline constexpr std::uint64_t kBase = 0x100000;
inline constexpr std::size_t kSize = 0x3000;
inline constexpr std::uint64_t kDescriptor = kBase, kFirstEntry = kBase + 0x100, kSecondEntry = kBase + 0x200;
inline constexpr std::uint64_t kFirstFile = kBase + 0x400, kSecondFile = kBase + 0x1800;
inline constexpr std::uint64_t kFirst = 0x7000'0000, kSecond = 0x7100'0000, kFunctionSize = 32;
inline constexpr std::uint64_t kBeside = 64;  // behind the first one's begin
inline constexpr std::uint64_t kHead = kDescriptor + 16, kNext = 0, kPrevious = 8, kFile = 16, kFileSize = 24;

// Two functions in one section, each with a frame of 48 bytes from its fourth byte on.
inline std::vector<std::byte> object(std::uint64_t address, std::string_view name) {
  Prologue prologue{.architecture = kOwnArchitecture, .code_size = kFunctionSize};
  prologue.ops = {{4, prologue::Allocate{48}}};
  const std::vector<GeneratedFunction> given = {
      {.address = address, .size = kFunctionSize, .name = name, .prologue = &prologue},
      {.address = address + kBeside, .size = kFunctionSize, .name = "beside", .prologue = &prologue}};
  const auto batch = registries::check_batch(given);
  return *registries::make_object(*batch, registries::runs_of(*batch));
}

class FakeMemory final : public MadeUpMemory {
 public:
  FakeMemory() : MadeUpMemory(kBase, kSize) {}
  void put_entry(std::uint64_t entry, std::uint64_t file, const std::vector<std::byte>& object) {
    std::memcpy(bytes.data() + (file - kBase), object.data(), object.size());
    put(entry + kFile, file), put(entry + kFileSize, std::uint64_t{object.size()});
  }
};

inline FakeMemory make() {
  static const std::vector<std::byte> first = object(kFirst, "first"), second = object(kSecond, "second");
  FakeMemory memory;
  memory.put(kDescriptor, std::uint32_t{1});
  memory.put_entry(kFirstEntry, kFirstFile, first), memory.put_entry(kSecondEntry, kSecondFile, second);
  memory.put(kHead, kSecondEntry);
  memory.put(kSecondEntry + kNext, kFirstEntry), memory.put(kFirstEntry + kPrevious, kSecondEntry);
  return memory;
}

// As the JIT compiler does it.
inline void unregister_second(FakeMemory& memory) {
  memory.put(kHead, kFirstEntry), memory.put(kFirstEntry + kPrevious, std::uint64_t{0});
}

}  // namespace windlass::test::fake_gdb
