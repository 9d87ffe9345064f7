// What pointer authentication puts into return addresses and how it is taken out, on the machine at hand.
#include <elf.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <optional>

#include "base/pointer_authentication.h"
#include "windlass/backtrace.h"

namespace windlass {
namespace {

std::uint64_t here() { return reinterpret_cast<std::uint64_t>(&here); }

// Signed for some stack pointer, where the processor does such things (PACIA1716, a hint like XPACLRI).
std::uint64_t sign(std::uint64_t address, std::uint64_t sp) {
#if defined(__aarch64__)
  asm("mov x17, %0\n\tmov x16, %1\n\thint #8\n\tmov %0, x17" : "+r"(address) : "r"(sp) : "x16", "x17");
#else
  (void)sp;
#endif
  return address;
}

TEST(Authentication, SignedAddressesAreStripped) {
  unsigned changed = 0;
  for (std::uint64_t sp = 0x1000; sp < 0x2000; sp += 16) {
    const std::uint64_t address = sign(here(), sp);
    changed += address != here() ? 1 : 0;
    EXPECT_EQ(without_authentication(address), here());
    EXPECT_EQ(address & user_code_mask(), here());
  }
  if (user_code_mask() == ~std::uint64_t{0}) {
    EXPECT_EQ(changed, 0u);
  } else {
    std::printf("%u of 256 addresses carried a code, the mask is %#lx\n", changed, user_code_mask());
  }
}

TEST(Authentication, TheMaskIsAnAddressSize) {
  const std::uint64_t mask = user_code_mask();
  if (kOwnArchitecture == Architecture::kX86_64) {
    EXPECT_EQ(mask, ~std::uint64_t{0});
  }
  if (mask == ~std::uint64_t{0}) return;
  EXPECT_TRUE(std::has_single_bit(mask + 1)) << std::hex << mask;
  EXPECT_GE(std::bit_width(mask), 36);
  EXPECT_LE(std::bit_width(mask), 52);
}

TEST(Authentication, OwnWalksUseTheSame) { EXPECT_EQ(own_process().pointer_mask(), ~user_code_mask()); }

// The kernel's own answer, which only a tracer gets; nothing where there is none.
std::optional<std::uint64_t> kernels_mask() {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(1);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  std::optional<std::uint64_t> answer;
  if (::waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
    std::uint64_t masks[2] = {};  // user_pac_mask: of data, of instructions
    iovec out{masks, sizeof masks};
    if (::ptrace(PTRACE_GETREGSET, child, NT_ARM_PAC_MASK, &out) == 0) answer = masks[1];
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
  }
  return answer;
}

TEST(Authentication, AgreesWithTheKernel) {
  const auto mask = kernels_mask();
  if (!mask) GTEST_SKIP() << "no NT_ARM_PAC_MASK from this kernel";
  constexpr std::uint64_t kBelowTag = ~std::uint64_t{0} >> 9;
  EXPECT_EQ(*mask, ~user_code_mask() & kBelowTag);
}

}  // namespace
}  // namespace windlass
