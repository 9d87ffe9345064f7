#include "os/reader_rights.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace windlass::os {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kMachine = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kMachine = AUDIT_ARCH_AARCH64;
#endif

// The commonest first. Memory of the C library's, files, the socket, the end. There is none that makes a socket, sends
// a signal, starts or traces a process.
constexpr std::uint32_t kAllowed[] = {
    SYS_recvmsg,
    SYS_sendmsg,
    SYS_process_vm_readv,
    SYS_pread64,
    SYS_read,
    SYS_close,
    SYS_lseek,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_fstatfs,
    SYS_fcntl,
    SYS_brk,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_mprotect,
    SYS_write,
    SYS_memfd_create,
    SYS_readlinkat,
    SYS_futex,
    SYS_getrandom,
    SYS_clock_gettime,
    SYS_getpid,
    SYS_exit,
    SYS_exit_group,
    SYS_rt_sigreturn,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_restart_syscall,
    SYS_sched_yield,
    SYS_gettid,
};
constexpr std::uint32_t kWrites = O_ACCMODE | O_CREAT | O_TRUNC;

consteval sock_filter load(std::size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
}
consteval sock_filter is(std::uint32_t value, std::size_t to_yes, std::size_t to_no) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, static_cast<std::uint8_t>(to_yes),
                  static_cast<std::uint8_t>(to_no));
}
consteval sock_filter returns(std::uint32_t what) { return BPF_STMT(BPF_RET | BPF_K, what); }

// The low half of an argument, which is all that a flag of 32 bits has.
consteval std::size_t low_half_of_argument(std::size_t number) {
  return offsetof(seccomp_data, args) + 8 * number + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 4 : 0);
}

struct Program {
  static constexpr std::size_t kCalls = std::size(kAllowed);
  sock_filter steps[kCalls + 9];
};

consteval Program make_program() {
  Program program{};
  std::size_t at = 0;
  const auto add = [&](sock_filter step) { program.steps[at++] = step; };
  constexpr std::size_t kRefuse = std::size(program.steps) - 2, kAllow = kRefuse + 1;
  add(load(offsetof(seccomp_data, arch)));
  add(is(kMachine, 0, kRefuse - 2));
  add(load(offsetof(seccomp_data, nr)));
  for (const std::uint32_t call : kAllowed) add(is(call, kAllow - at - 1, 0));
  add(is(SYS_openat, 0, kRefuse - at - 1));
  add(load(low_half_of_argument(2)));
  add(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, kWrites));
  add(is(O_RDONLY, kAllow - at - 1, 0));
  add(returns(SECCOMP_RET_ERRNO | EPERM));
  add(returns(SECCOMP_RET_ALLOW));
  return program;
}

}  // namespace

void keep_rights_of_reader() {
  static constexpr Program kProgram = make_program();
  const sock_fprog program{std::size(kProgram.steps), const_cast<sock_filter*>(kProgram.steps)};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return;
  (void)::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

}  // namespace windlass::os
