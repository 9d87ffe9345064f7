// The callee restores a register from the place where it was saved. So the caller finds a value that was written there.
#include <gtest/gtest.h>

#include "windlass/target.h"

#if defined(__x86_64__)
#include <signal.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

// outer: sets the six preserved registers, calls middle, and gives back what they then are (in the array it is given).
// middle: saves and overwrites them, and calls wait.
extern "C" void save_locations_outer(std::uint64_t* registers, void (*wait)(void*), void* argument);
extern "C" const char save_locations_outer_end[];
asm(R"(
        .text
        .type save_locations_outer, @function
save_locations_outer:
        .cfi_startproc
        push %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        push %rbp
        .cfi_def_cfa_offset 24
        .cfi_offset %rbp, -24
        push %r12
        .cfi_def_cfa_offset 32
        .cfi_offset %r12, -32
        push %r13
        .cfi_def_cfa_offset 40
        .cfi_offset %r13, -40
        push %r14
        .cfi_def_cfa_offset 48
        .cfi_offset %r14, -48
        push %r15
        .cfi_def_cfa_offset 56
        .cfi_offset %r15, -56
        push %rdi
        .cfi_def_cfa_offset 64
        mov $0x101, %ebx
        mov $0x102, %ebp
        mov $0x103, %r12d
        mov $0x104, %r13d
        mov $0x105, %r14d
        mov $0x106, %r15d
        call save_locations_middle
        pop %rdi
        .cfi_def_cfa_offset 56
        mov %rbx, (%rdi)
        mov %rbp, 8(%rdi)
        mov %r12, 16(%rdi)
        mov %r13, 24(%rdi)
        mov %r14, 32(%rdi)
        mov %r15, 40(%rdi)
        pop %r15
        pop %r14
        pop %r13
        pop %r12
        pop %rbp
        pop %rbx
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
save_locations_outer_end:
        .size save_locations_outer, . - save_locations_outer

        .type save_locations_middle, @function
save_locations_middle:
        .cfi_startproc
        sub $0x38, %rsp
        .cfi_def_cfa_offset 64
        mov %rbx, (%rsp)
        .cfi_offset %rbx, -64
        mov %rbp, 8(%rsp)
        .cfi_offset %rbp, -56
        mov %r12, 16(%rsp)
        .cfi_escape 0x10, 12, 2, 0x77, 16  # DW_CFA_expression: r12 is at rsp + 16
        mov %r13, 24(%rsp)
        .cfi_offset %r13, -40
        mov %r14, 32(%rsp)
        .cfi_offset %r14, -32
        mov %r15, 40(%rsp)
        .cfi_offset %r15, -24
        xor %ebx, %ebx
        xor %ebp, %ebp
        xor %r12d, %r12d
        xor %r13d, %r13d
        xor %r14d, %r14d
        xor %r15d, %r15d
        mov %rdx, %rdi
        call *%rsi
        mov (%rsp), %rbx
        mov 8(%rsp), %rbp
        mov 16(%rsp), %r12
        mov 24(%rsp), %r13
        mov 32(%rsp), %r14
        mov 40(%rsp), %r15
        add $0x38, %rsp
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size save_locations_middle, . - save_locations_middle
)");

namespace windlass {
namespace {

constexpr RegisterNumber kPreserved[6] = {3, 6, 12, 13, 14, 15};

struct Pipes {
  int ready[2];
  int go[2];
};

// Says that it is deep in calls, and waits.
void wait_deep(void* argument) {
  const Pipes& pipes = *static_cast<const Pipes*>(argument);
  char byte = 'r';
  if (::write(pipes.ready[1], &byte, 1) != 1 || ::read(pipes.go[0], &byte, 1) != 1) ::_exit(2);
}

[[noreturn]] void child(Pipes& pipes) {
  std::uint64_t now[6];
  save_locations_outer(now, wait_deep, &pipes);
  for (std::uint64_t i = 0; i < 6; ++i)
    if (now[i] != 0x2001 + i) ::_exit(static_cast<int>(10 + i));
  ::_exit(42);
}

TEST(SaveLocations, WhatIsWrittenThereIsWhatTheCallerFinds) {
  Pipes pipes{};
  ASSERT_EQ(::pipe(pipes.ready), 0);
  ASSERT_EQ(::pipe(pipes.go), 0);
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    ::close(pipes.go[1]);  // so that the end of the parent ends the wait
    child(pipes);
  }
  char byte = 0;
  ASSERT_EQ(::read(pipes.ready[0], &byte, 1), 1);

  auto target = open_process(static_cast<std::uint64_t>(pid));
  if (!target) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    GTEST_SKIP() << target.error().text();
  }
  bool found = false;
  const auto begin = reinterpret_cast<std::uint64_t>(&save_locations_outer);
  const auto end = reinterpret_cast<std::uint64_t>(save_locations_outer_end);
  for (const Frame& frame : StackWalker(target->space, target->threads.at(0).registers)) {
    if (frame.pc().value() < begin || frame.pc().value() >= end) continue;
    found = true;
    for (std::uint64_t i = 0; i < 6; ++i) {
      EXPECT_EQ(frame.registers.get(kPreserved[i]), 0x101 + i);
      const std::uint64_t at = frame.saved.at(frame.registers, kPreserved[i]);
      EXPECT_GE(at, target->threads[0].registers.sp());
      std::uint64_t value = 0x2001 + i;
      const iovec from{&value, sizeof value};
      const iovec to{reinterpret_cast<void*>(at), sizeof value};
      EXPECT_EQ(::process_vm_writev(pid, &from, 1, &to, 1, 0), 8);
    }
  }
  EXPECT_TRUE(found);
  target->release();
  ASSERT_EQ(::write(pipes.go[1], &byte, 1), 1);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42);  // 10 to 15: that register was not what was written
}

}  // namespace
}  // namespace windlass
#else
TEST(SaveLocations, WhatIsWrittenThereIsWhatTheCallerFinds) { GTEST_SKIP() << "written in x86-64 assembly"; }
#endif
