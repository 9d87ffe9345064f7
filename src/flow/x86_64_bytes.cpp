// What bytes of x86-64 code show without being followed: calls, and where functions may begin.
#include <algorithm>
#include <cstring>
#include <span>

#include "base/x86_64_call.h"
#include "flow/x86_64.h"

namespace windlass::flow {

bool X86_64::behind_call(const CodeSource& source, std::uint64_t address) {
  std::uint8_t code[x86_64::kLongestCall] = {};  // before the address
  return !source.read(address - sizeof code, code, sizeof code) || x86_64::ends_with_call(code);
}

std::uint64_t X86_64::direct_call_target(const CodeSource& source, std::uint64_t address) {
  std::uint8_t code[5] = {};
  if (!source.read(address - sizeof code, code, sizeof code) || code[0] != 0xe8) return 0;
  std::int32_t distance = 0;
  std::memcpy(&distance, code + 1, sizeof distance);
  return address + static_cast<std::uint64_t>(std::int64_t{distance});
}

// mov r32, imm32 or mov r64, imm64 (Intel SDM 2B, "MOV", opcode b8), and call r64 behind it.
std::uint64_t X86_64::constant_call_target(const CodeSource& source, std::uint64_t address) {
  constexpr std::size_t kLongest = 13;
  constexpr std::uint8_t kHigh = 0x41, kWide = 0x48, kWideHigh = 0x49;  // prefixes of r8 to r15, of 64 bits, of both
  std::uint8_t code[kLongest] = {};
  if (!source.read(address - kLongest, code, kLongest) || code[11] != 0xff || (code[12] & 0xf8) != 0xd0) return 0;
  const std::uint8_t load = 0xb8 | (code[12] & 7);
  const auto loads = [&](std::size_t at, std::uint8_t prefix) { return code[at] == prefix && code[at + 1] == load; };
  std::uint64_t wide = 0;
  std::uint32_t narrow = 0;
  if (const bool high = code[10] == kHigh; high && loads(0, kWideHigh)) {
    std::memcpy(&wide, code + 2, sizeof wide);
  } else if (high && loads(4, kHigh)) {
    std::memcpy(&narrow, code + 6, sizeof narrow);
  } else if (loads(1, kWide)) {
    std::memcpy(&wide, code + 3, sizeof wide);
  } else if (code[6] == load && code[5] != kHigh) {
    std::memcpy(&narrow, code + 7, sizeof narrow);
  }
  return wide | narrow;
}

bool X86_64::behind_indirect_call(const CodeSource& source, std::uint64_t address) {
  std::uint8_t code[x86_64::kLongestCall] = {};
  return source.read(address - sizeof code, code, sizeof code) && x86_64::ends_with_indirect_call(code);
}

// lea reg, [rip + n]: compilers put it before each use of a jump table.
bool X86_64::loads_table(CodeReader& code, std::uint64_t address) {
  std::uint8_t b[3] = {};
  return code.read(address, b, sizeof b) == sizeof b && (b[0] & 0xfb) == 0x48 && b[1] == 0x8d && (b[2] & 0xc7) == 0x05;
}

// Behind ret, jmp, hlt or ud2 (-Os aligns nothing), or aligned behind padding.
bool X86_64::may_start_function(CodeReader& code, std::uint64_t address) {
  std::uint8_t b[6] = {};  // five bytes before, and the first
  if (code.read(address - 5, b, sizeof b) != sizeof b) return false;
  if (b[5] == 0x90 || b[5] == 0xcc || b[5] == 0) return false;
  if (b[4] == 0xc3 || b[4] == 0xf4 || b[0] == 0xe9 || b[3] == 0xeb || (b[3] == 0x0f && b[4] == 0x0b)) return true;
  const bool call = b[0] == 0xe8;  // its last byte is no padding
  return address % 16 == 0 && !call && (b[4] == 0x90 || b[4] == 0xcc || b[4] == 0);
}

// The bytes of a push of a register that calls preserve; 0: the code begins with another instruction.
static std::size_t push_of_preserved(std::span<const std::uint8_t> code) {
  if (code[0] == 0x53 || code[0] == 0x55) return 1;                      // rbx, rbp
  return code[0] == 0x41 && code[1] >= 0x54 && code[1] <= 0x57 ? 2 : 0;  // r12 to r15
}

bool X86_64::begins_prologue(CodeReader& code, std::uint64_t address) {
  constexpr std::uint8_t kCall = 0xe8, kPushR15[] = {0x41, 0x57}, kPushR14[] = {0x41, 0x56};
  std::uint8_t b[5 + 14] = {};  // a call, and code behind it
  if (code.read(address - 5, b, sizeof b) != sizeof b) return false;
  const auto behind = std::span<const std::uint8_t>(b).subspan(5);
  const std::size_t first = push_of_preserved(behind);
  if (first == 0) return false;
  if (b[0] == kCall)
    return std::ranges::equal(behind.first(2), kPushR15) && !std::ranges::search(behind.subspan(2), kPushR14).empty();
  return push_of_preserved(behind.subspan(first)) != 0 && may_start_function(code, address);
}

// Behind int3, which compilers fill up with. Or a frame is made first (sub rsp, n), with no room left for padding.
bool X86_64::begins_aligned(std::span<const std::uint8_t, kBeforeStart + kOfStart> bytes) {
  if (bytes[0] == kPadding) return bytes[1] != kPadding;
  return bytes[1] == 0x48 && (bytes[2] == 0x83 || bytes[2] == 0x81) && bytes[3] == 0xec;
}

}  // namespace windlass::flow
