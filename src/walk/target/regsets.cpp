#include "walk/target/regsets.h"

#include <array>
#include <span>

#include "base/registers.h"

namespace windlass::walk {
namespace {

constexpr RegisterNumber kNone = 0xffff;
constexpr RegisterNumber kFs = x86_64::kFsBase, kGs = x86_64::kGsBase;

// user_regs_struct in order: r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss
// fs_base gs_base ...
constexpr std::array<RegisterNumber, 23> kX86 = {15, 14, 13, 12,    6,  3,     11,    10, 9,     8,   0,  2,
                                                 1,  4,  5,  kNone, 16, kNone, kNone, 7,  kNone, kFs, kGs};
// user_regs_struct32 in order: ebx ecx edx esi edi ebp eax ds es fs gs orig_eax eip cs eflags esp ss
constexpr std::array<RegisterNumber, 17> kI386 = {3,     1,     2,     6, 7,     5,     0, kNone, kNone,
                                                  kNone, kNone, kNone, 8, kNone, kNone, 4, kNone};
// x0-x30, sp, pc: DWARF's numbers; pstate.
constexpr std::array<RegisterNumber, 34> kArm = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
                                                 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, kNone};

struct Layout {
  std::span<const RegisterNumber> numbers;
  std::size_t words;
};

Layout layout_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::kX86_64: return {kX86, 27};
    case Architecture::kAArch64: return {kArm, kArm.size()};
    case Architecture::kI386: break;
  }
  return {kI386, kI386.size()};
}

}  // namespace

std::size_t general_registers_size(Architecture architecture) {
  return layout_of(architecture).words * Registers::word_size(architecture);
}

Expected<Registers> general_registers(Architecture architecture, ByteView regset) {
  const auto bytes = regset.sub(0, general_registers_size(architecture));
  if (!bytes) return fail(ErrorCode::kTruncated, "register set is too short", regset.origin(), regset.size());
  Registers registers(architecture);
  const std::span<const RegisterNumber> numbers = layout_of(architecture).numbers;
  const std::size_t word = Registers::word_size(architecture);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] == kNone) continue;
    registers.set(numbers[i], word == 4 ? *bytes->at<std::uint32_t>(4 * i) : *bytes->at<std::uint64_t>(8 * i));
  }
  return registers;
}

Expected<void> add_vector_registers(Registers& to, ByteView regset) {
  constexpr RegisterNumber kFirst = 72;  // d8, as the lower half of v8
  for (unsigned i = 0; i < 8; ++i) {
    const auto value = regset.at<std::uint64_t>(std::uint64_t{16} * (8 + i));
    if (!value) return Failure(value.error());
    to.set(static_cast<RegisterNumber>(kFirst + i), *value);
  }
  return {};
}

}  // namespace windlass::walk
