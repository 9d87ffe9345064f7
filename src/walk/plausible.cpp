#include "walk/plausible.h"

#include <cstring>

#include "walk/module.h"

namespace windlass::walk {
namespace {

// bl, blr and its authenticating forms (Arm ARM C6.2: BL, BLR, BLRAA).
bool is_aarch64_call(std::uint32_t word) {
  return (word & 0xfc00'0000) == 0x9400'0000 || (word & 0xffff'fc1f) == 0xd63f'0000 ||
         (word & 0xfeff'f800) == 0xd63f'0800;
}

// Does `call r/m64` (ff /2) of exactly `length` bytes stand at `at`? Intel SDM volume 2, tables 2-2 and 2-3.
bool is_indirect_call(const std::uint8_t* at, int length) {
  if (at[0] != 0xff || (at[1] >> 3 & 7) != 2) return false;
  const int mod = at[1] >> 6, rm = at[1] & 7;
  const bool has_sib = mod != 3 && rm == 4;
  if (has_sib && length < 3) return false;
  const bool wide = mod == 2 || (mod == 0 && (rm == 5 || (has_sib && (at[2] & 7) == 5)));
  return length == 2 + (has_sib ? 1 : 0) + (wide ? 4 : mod == 1 ? 1 : 0);
}

}  // namespace

bool read_code(const AddressSpace& space, std::uint64_t address, void* to, std::size_t size) {
  if (space.memory().read(address, to, size)) return true;
  const Module* module = space.find(address);
  return module != nullptr && module->read_image(address, to, size);
}

bool behind_call(const AddressSpace& space, std::uint64_t address) {
  if (space.architecture() == Architecture::kAArch64) {
    std::uint32_t word = 0;
    return address % 4 == 0 && read_code(space, address - 4, &word, sizeof word) && is_aarch64_call(word);
  }
  constexpr int kLongest = 7;
  std::uint8_t before[kLongest] = {};
  if (!read_code(space, address - kLongest, before, kLongest)) return false;
  if (before[kLongest - 5] == 0xe8) return true;  // call rel32
  for (int length = 2; length <= kLongest; ++length)
    if (is_indirect_call(before + kLongest - length, length)) return true;
  return false;
}

bool is_trampoline(const AddressSpace& space, std::uint64_t address) {
  // mov $15, %rax (or %eax); syscall: glibc's and musl's restorers
  static constexpr std::uint8_t kWide[] = {0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05};
  static constexpr std::uint8_t kShort[] = {0xb8, 15, 0, 0, 0, 0x0f, 0x05};
  // mov x8, #139; svc #0: the vdso's
  static constexpr std::uint8_t kAArch64[] = {0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4};
  const auto stands = [&](const auto& pattern) {
    std::uint8_t bytes[sizeof pattern];
    return read_code(space, address, bytes, sizeof bytes) && std::memcmp(bytes, pattern, sizeof bytes) == 0;
  };
  return space.architecture() == Architecture::kAArch64 ? stands(kAArch64) : stands(kWide) || stands(kShort);
}

bool plausible(const AddressSpace& space, const Registers& caller) {
  constexpr unsigned kUserBits = 56;  // x86-64 with five-level paging; AArch64 has 52
  return caller.sp() % 8 == 0 && caller.sp() >> kUserBits == 0 && space.find(caller.pc().lookup()) != nullptr;
}

}  // namespace windlass::walk
