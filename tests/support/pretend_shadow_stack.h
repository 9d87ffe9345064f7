// Pretends a processor with shadow stacks (CET). A child is single-stepped, and gets a shadow stack pointer at the
// instruction that reads it. So the refusals for threads with a shadow stack can be seen on any machine.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

namespace windlass::test {

// Which of the first eight registers is written by the rdsspq at an address: F3 REX.W 0F 1E /1 (Intel SDM). -1: another
// instruction stands there.
inline int written_by_rdssp(pid_t child, std::uint64_t address) {
  const long word = ::ptrace(PTRACE_PEEKTEXT, child, address, nullptr);
  std::uint8_t code[sizeof word];
  std::memcpy(code, &word, sizeof word);
  const bool is_one = code[0] == 0xf3 && code[1] == 0x48 && code[2] == 0x0f && code[3] == 0x1e && code[4] >> 3 == 0x19;
  return is_one ? code[4] & 7 : -1;
}

// Runs `what` in a child that is made to see a shadow stack, and ends the calling process. The status is 0 if the child
// was aborted, 77 if nothing could be traced, 78 if the child did not ask, 79 if it went on. For EXPECT_EXIT.
template <typename What>
[[noreturn]] void exit_with_shadow_stack(const What& what) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(77);
    ::raise(SIGSTOP);
    what();
    ::_exit(79);
  }
  constexpr unsigned kMost = 1'000'000;
  int status = 0;
  ::waitpid(child, &status, 0);
  for (unsigned i = 0; i < kMost && WIFSTOPPED(status); ++i) {
    user_regs_struct state{};
    ::ptrace(PTRACE_GETREGS, child, nullptr, &state);
    const int written = written_by_rdssp(child, state.rip);
    ::ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr);
    ::waitpid(child, &status, 0);
    if (written < 0 || !WIFSTOPPED(status)) continue;
    ::ptrace(PTRACE_GETREGS, child, nullptr, &state);
    unsigned long long* const all[] = {&state.rax, &state.rcx, &state.rdx, &state.rbx,
                                       &state.rsp, &state.rbp, &state.rsi, &state.rdi};
    *all[written] = 0x7000;
    ::ptrace(PTRACE_SETREGS, child, nullptr, &state);
    ::ptrace(PTRACE_CONT, child, nullptr, nullptr);
    ::waitpid(child, &status, 0);
    while (WIFSTOPPED(status)) {  // abort()'s signal
      ::ptrace(PTRACE_CONT, child, nullptr, WSTOPSIG(status));
      ::waitpid(child, &status, 0);
    }
    ::_exit(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? 0 : WEXITSTATUS(status));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) ::_exit(77);
  ::kill(child, SIGKILL);
  ::_exit(78);
}

}  // namespace windlass::test
#endif
