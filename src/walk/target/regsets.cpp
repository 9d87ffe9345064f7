#include "walk/target/regsets.h"

#include <array>

namespace windlass::walk {
namespace {

constexpr RegisterNumber kNone = 0xffff;

// user_regs_struct in order: r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ...
constexpr std::array<RegisterNumber, 20> kX86 = {15, 14, 13, 12, 6, 3,     11, 10,    9,     8,
                                                 0,  2,  1,  4,  5, kNone, 16, kNone, kNone, 7};
constexpr std::size_t kX86Words = 27;
constexpr std::size_t kArmWords = 34;  // x0-x30, sp, pc, pstate: DWARF's numbers for the first 33

}  // namespace

std::size_t general_registers_size(Architecture architecture) {
  return 8 * (architecture == Architecture::kX86_64 ? kX86Words : kArmWords);
}

Expected<Registers> general_registers(Architecture architecture, ByteView regset) {
  const auto bytes = regset.sub(0, general_registers_size(architecture));
  if (!bytes) return fail(ErrorCode::kTruncated, "register set is too short", regset.origin(), regset.size());
  Registers registers(architecture);
  const std::size_t count = architecture == Architecture::kX86_64 ? kX86.size() : kArmWords - 1;
  for (std::size_t i = 0; i < count; ++i) {
    const RegisterNumber number = architecture == Architecture::kX86_64 ? kX86[i] : static_cast<RegisterNumber>(i);
    if (number != kNone) registers.set(number, *bytes->at<std::uint64_t>(8 * i));
  }
  return registers;
}

Expected<void> add_vector_registers(Registers& to, ByteView regset) {
  constexpr RegisterNumber kFirst = 72;  // d8, as the lower half of v8
  for (unsigned i = 0; i < 8; ++i) {
    const auto value = regset.at<std::uint64_t>(std::uint64_t{16} * (8 + i));
    if (!value) return std::unexpected(value.error());
    to.set(static_cast<RegisterNumber>(kFirst + i), *value);
  }
  return {};
}

}  // namespace windlass::walk
