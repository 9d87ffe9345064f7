// The frame that Linux makes on the stack before a signal handler runs on AArch64. At sp is struct rt_sigframe {
// siginfo_t info; struct ucontext uc; }. The handler returns to code that only calls rt_sigreturn. Offsets count from
// sp there. Sources: arch/arm64/include/uapi/asm/{ucontext,sigcontext}.h, kernel/signal.c.
//
// The kernel's vdso has unwind information for that code. It leads to the frame record of the interrupted code: to its
// x29 and x30 instead of its pc. The kernel says itself that unwinders should recognise the two instructions. Other
// copies of this code have no unwind information, for example in musl and on qemu's page.
#pragma once

#include <cstdint>

#include "base/registers.h"
#include "windlass/frame_row.h"

namespace windlass::aarch64 {

inline constexpr std::uint64_t kRtSigreturn = 139;            // in x8 (include/uapi/asm-generic/unistd.h)
inline constexpr std::uint32_t kMovRtSigreturn = 0xd2801168;  // mov x8, #139
inline constexpr std::uint32_t kSvc = 0xd4000001;             // svc #0
inline constexpr std::uint64_t kSystemCallSize = 4;

inline constexpr std::int32_t kSignalInfoSize = 128;
inline constexpr std::int32_t kSignalContext = kSignalInfoSize + 176;  // uc.uc_mcontext, aligned to 16
inline constexpr std::int32_t kSignalRegisters = kSignalContext + 8;   // x0-x30, behind the fault address
inline constexpr std::int32_t kSignalSp = kSignalRegisters + 31 * 8;
inline constexpr std::int32_t kSignalPc = kSignalSp + 8;
inline constexpr std::int32_t kSignalRecords = kSignalContext + 288;  // __reserved, aligned to 16
inline constexpr std::int32_t kSignalVectors = kSignalRecords + 16;   // v0 in the first, a struct fpsimd_context
inline constexpr std::uint32_t kVectorRecord = 0x46508001;            // FPSIMD_MAGIC

// Is `pc` at one of the two instructions that return from a handler? A return address points at the first.
// read(address, to, size): code; false where there is none.
template <typename Read>
[[nodiscard]] bool at_signal_return(const Read& read, std::uint64_t pc) {
  std::uint32_t words[2] = {};
  if (pc % 4 != 0 || !read(pc, words, sizeof words[0])) return false;
  if (words[0] == kSvc)
    pc -= 4;
  else if (words[0] != kMovRtSigreturn)
    return false;
  return read(pc, words, sizeof words) && words[0] == kMovRtSigreturn && words[1] == kSvc;
}

// Does the signal frame at `sp` hold the vector registers? read(address, to, size): the stack.
template <typename Read>
[[nodiscard]] bool has_vector_record(const Read& read, std::uint64_t sp) {
  std::uint32_t record = 0;
  return read(sp + kSignalRecords, &record, sizeof record) && record == kVectorRecord;
}

// The interrupted code as the caller of the trampoline at `pc`. `vectors`: the first record is kVectorRecord.
inline void signal_frame_row(std::uint64_t pc, bool vectors, FrameRow& row) {
  row.begin = pc;
  row.end = pc + 1;
  row.cfa = CfaRule::at(kSp, 0);
  row.return_address = RegisterRule::at_cfa(kSignalPc);
  row.signal_frame = true;
  row.return_signed = false;
  row.registers.clear();
  for (std::uint16_t i = 0; i <= kX30; ++i)
    (void)row.registers.set(i, RegisterRule::at_cfa(static_cast<std::int32_t>(kSignalRegisters + 8 * i)));
  (void)row.registers.set(kSp, RegisterRule::at_cfa(kSignalSp));
  for (std::uint16_t i = 8; i <= 15; ++i) {
    const RegisterRule rule =
        vectors ? RegisterRule::at_cfa(static_cast<std::int32_t>(kSignalVectors + 16 * i)) : RegisterRule::undefined();
    (void)row.registers.set(static_cast<RegisterNumber>(64 + i), rule);
  }
}

}  // namespace windlass::aarch64
