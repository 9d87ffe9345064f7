#include "walk/target/minidump_context.h"

#include <iterator>

#include "base/registers.h"

namespace windlass::walk {
namespace {

constexpr std::uint32_t kControl = 1;
constexpr std::uint32_t kInteger = 2;
constexpr std::uint32_t kFloatingPoint = 4;

// ---- CONTEXT_AMD64 ------------------------------------------------------------------------------------------------

constexpr std::uint32_t kAmd64 = 0x00100000;
constexpr std::uint64_t kAmd64Flags = 0x30;
constexpr std::uint32_t kAmd64FloatingPoint = 8;
constexpr std::uint64_t kAmd64Rax = 0x78;
constexpr std::uint64_t kAmd64Rip = 0xf8;
constexpr std::uint64_t kAmd64Mm0 = 0x120;  // FltSave.FloatRegisters[0]; of ARM64EC_NT_CONTEXT: Lr
// From Rax on the registers are in the order of their encoding.
constexpr auto& kAmd64Order = x86_64::kDwarfNumbers;

Expected<Registers> amd64(ByteView context) {
  const auto flags = context.at<std::uint32_t>(kAmd64Flags);
  if (!flags || context.size() < kAmd64Rip + 8)
    return fail(ErrorCode::kTruncated, "context is too short", context.origin(), context.size());
  if ((*flags & kAmd64) == 0)
    return fail(ErrorCode::kMalformed, "context is not of x86-64", context.origin() + kAmd64Flags, *flags);
  Registers registers(Architecture::kX86_64);
  constexpr RegisterNumber kSp = Registers::sp_number(Architecture::kX86_64);
  for (std::size_t i = 0; i < std::size(kAmd64Order); ++i) {
    const std::uint32_t group = kAmd64Order[i] == kSp ? kControl : kInteger;
    if ((*flags & group) != 0) registers.set(kAmd64Order[i], *context.at<std::uint64_t>(kAmd64Rax + 8 * i));
  }
  if ((*flags & kControl) != 0) registers.set_pc(CodeAddress::instruction(*context.at<std::uint64_t>(kAmd64Rip)));
  if (const auto mm0 = context.at<std::uint64_t>(kAmd64Mm0); mm0 && *mm0 != 0 && (*flags & kAmd64FloatingPoint) != 0)
    registers.set(x86_64::kMm0, *mm0);
  return registers;
}

// ---- CONTEXT_ARM64 ------------------------------------------------------------------------------------------------

// Microsoft's form: u32 flags, u32 cpsr, x0-x28, fp, lr, sp, pc, v0-v31. Breakpad's old form: u64 flags, x0-x30, sp,
// pc, u32 cpsr, fpsr, fpcr, v0-v31. The 33 words stand at the same place in both.
constexpr std::uint32_t kArm64 = 0x00400000;
constexpr std::uint32_t kArm64Breakpad = 0x80000000;
constexpr std::uint64_t kArm64Words = 8;
constexpr std::uint64_t kArm64Vectors = 272;
constexpr std::uint64_t kBreakpadVectors = 284;

Expected<Registers> arm64(ByteView context) {
  const auto flags = context.at<std::uint32_t>(0);
  constexpr std::uint64_t kWords = 33;
  if (!flags || context.size() < kArm64Words + 8 * kWords)
    return fail(ErrorCode::kTruncated, "context is too short", context.origin(), context.size());
  const bool breakpad = (*flags & kArm64Breakpad) != 0;
  if (!breakpad && (*flags & kArm64) == 0)
    return fail(ErrorCode::kMalformed, "context is not of AArch64", context.origin(), *flags);
  Registers registers(Architecture::kAArch64);
  for (unsigned i = 0; i < kWords; ++i) {
    // fp, lr, sp and pc are control registers to Windows; Breakpad's old flags know no such group.
    const std::uint32_t group = i >= 29 && !breakpad ? kControl : kInteger;
    if ((*flags & group) != 0)
      registers.set(static_cast<RegisterNumber>(i), *context.at<std::uint64_t>(kArm64Words + std::uint64_t{8} * i));
  }
  const std::uint64_t vectors = breakpad ? kBreakpadVectors : kArm64Vectors;
  constexpr RegisterNumber kD8 = 72;
  for (unsigned i = 0; i < 8 && (*flags & kFloatingPoint) != 0; ++i)
    if (const auto value = context.at<std::uint64_t>(vectors + std::uint64_t{16} * (8 + i)))
      registers.set(static_cast<RegisterNumber>(kD8 + i), *value);
  return registers;
}

}  // namespace

Expected<Registers> context_registers(Architecture architecture, ByteView context) {
  return architecture == Architecture::kX86_64 ? amd64(context) : arm64(context);
}

}  // namespace windlass::walk
