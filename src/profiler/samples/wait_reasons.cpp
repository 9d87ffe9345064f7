#include "profiler/samples/wait_reasons.h"

#include <sys/syscall.h>

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "windlass_event_layout.h"

namespace windlass::profiler {
namespace {

// System calls that may wait, if not for others then for a lock of the kernel's.
struct Call {
  int number;
  const char* name;
};
constexpr Call kCalls[] = {
    {SYS_read, "read"},
    {SYS_write, "write"},
    {SYS_readv, "readv"},
    {SYS_writev, "writev"},
    {SYS_pread64, "pread64"},
    {SYS_pwrite64, "pwrite64"},
    {SYS_preadv, "preadv"},
    {SYS_pwritev, "pwritev"},
    {SYS_preadv2, "preadv2"},
    {SYS_pwritev2, "pwritev2"},
    {SYS_openat, "openat"},
    {SYS_openat2, "openat2"},
    {SYS_close, "close"},
    {SYS_ppoll, "ppoll"},
    {SYS_pselect6, "pselect6"},
    {SYS_epoll_pwait, "epoll_pwait"},
    {SYS_epoll_pwait2, "epoll_pwait2"},
    {SYS_futex, "futex"},
    {SYS_futex_waitv, "futex_waitv"},
    {SYS_nanosleep, "nanosleep"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_wait4, "wait4"},
    {SYS_waitid, "waitid"},
    {SYS_accept, "accept"},
    {SYS_accept4, "accept4"},
    {SYS_connect, "connect"},
    {SYS_shutdown, "shutdown"},
    {SYS_recvfrom, "recvfrom"},
    {SYS_recvmsg, "recvmsg"},
    {SYS_recvmmsg, "recvmmsg"},
    {SYS_sendto, "sendto"},
    {SYS_sendmsg, "sendmsg"},
    {SYS_sendmmsg, "sendmmsg"},
    {SYS_sendfile, "sendfile"},
    {SYS_splice, "splice"},
    {SYS_tee, "tee"},
    {SYS_vmsplice, "vmsplice"},
    {SYS_copy_file_range, "copy_file_range"},
    {SYS_fsync, "fsync"},
    {SYS_fdatasync, "fdatasync"},
    {SYS_sync, "sync"},
    {SYS_syncfs, "syncfs"},
    {SYS_sync_file_range, "sync_file_range"},
    {SYS_msync, "msync"},
    {SYS_mmap, "mmap"},
    {SYS_munmap, "munmap"},
    {SYS_mremap, "mremap"},
    {SYS_madvise, "madvise"},
    {SYS_mprotect, "mprotect"},
    {SYS_brk, "brk"},
    {SYS_mlock, "mlock"},
    {SYS_mlockall, "mlockall"},
    {SYS_munlock, "munlock"},
    {SYS_mincore, "mincore"},
    {SYS_mbind, "mbind"},
    {SYS_migrate_pages, "migrate_pages"},
    {SYS_move_pages, "move_pages"},
    {SYS_rt_sigtimedwait, "rt_sigtimedwait"},
    {SYS_rt_sigsuspend, "rt_sigsuspend"},
    {SYS_flock, "flock"},
    {SYS_fcntl, "fcntl"},
    {SYS_ioctl, "ioctl"},
    {SYS_semop, "semop"},
    {SYS_semtimedop, "semtimedop"},
    {SYS_msgrcv, "msgrcv"},
    {SYS_msgsnd, "msgsnd"},
    {SYS_mq_timedreceive, "mq_timedreceive"},
    {SYS_mq_timedsend, "mq_timedsend"},
    {SYS_io_getevents, "io_getevents"},
    {SYS_io_pgetevents, "io_pgetevents"},
    {SYS_io_submit, "io_submit"},
    {SYS_io_destroy, "io_destroy"},
    {SYS_io_uring_enter, "io_uring_enter"},
    {SYS_sched_yield, "sched_yield"},
    {SYS_sched_setaffinity, "sched_setaffinity"},
    {SYS_getrandom, "getrandom"},
    {SYS_unlinkat, "unlinkat"},
    {SYS_renameat2, "renameat2"},
    {SYS_mkdirat, "mkdirat"},
    {SYS_linkat, "linkat"},
    {SYS_symlinkat, "symlinkat"},
    {SYS_newfstatat, "newfstatat"},
    {SYS_statx, "statx"},
    {SYS_fstat, "fstat"},
    {SYS_getdents64, "getdents64"},
    {SYS_truncate, "truncate"},
    {SYS_ftruncate, "ftruncate"},
    {SYS_fallocate, "fallocate"},
    {SYS_execve, "execve"},
    {SYS_execveat, "execveat"},
    {SYS_clone, "clone"},
    {SYS_clone3, "clone3"},
    {SYS_exit, "exit"},
    {SYS_exit_group, "exit_group"},
    {SYS_membarrier, "membarrier"},
    {SYS_readahead, "readahead"},
    {SYS_mount, "mount"},
    {SYS_umount2, "umount2"},
    {SYS_ptrace, "ptrace"},
    {SYS_kill, "kill"},
    {SYS_tgkill, "tgkill"},
    {SYS_bpf, "bpf"},
    {SYS_perf_event_open, "perf_event_open"},
    {SYS_restart_syscall, "restart_syscall"},
    {SYS_process_vm_readv, "process_vm_readv"},
    {SYS_process_vm_writev, "process_vm_writev"},
    {SYS_process_madvise, "process_madvise"},
    {SYS_finit_module, "finit_module"},
    {SYS_delete_module, "delete_module"},
    {SYS_setns, "setns"},
    {SYS_unshare, "unshare"},
    {SYS_prctl, "prctl"},
    {SYS_prlimit64, "prlimit64"},
    {SYS_rt_sigreturn, "rt_sigreturn"},
    {SYS_chdir, "chdir"},
    {SYS_faccessat, "faccessat"},
    {SYS_faccessat2, "faccessat2"},
    {SYS_utimensat, "utimensat"},
    {SYS_fchmodat, "fchmodat"},
    {SYS_fchownat, "fchownat"},
    {SYS_getxattr, "getxattr"},
    {SYS_setxattr, "setxattr"},
    {SYS_inotify_rm_watch, "inotify_rm_watch"},
#ifdef __x86_64__
    {SYS_open, "open"},
    {SYS_poll, "poll"},
    {SYS_select, "select"},
    {SYS_epoll_wait, "epoll_wait"},
    {SYS_pause, "pause"},
    {SYS_fork, "fork"},
    {SYS_vfork, "vfork"},
    {SYS_rename, "rename"},
    {SYS_renameat, "renameat"},
    {SYS_mkdir, "mkdir"},
    {SYS_rmdir, "rmdir"},
    {SYS_unlink, "unlink"},
    {SYS_link, "link"},
    {SYS_symlink, "symlink"},
    {SYS_stat, "stat"},
    {SYS_lstat, "lstat"},
    {SYS_access, "access"},
    {SYS_getdents, "getdents"},
    {SYS_creat, "creat"},
    {SYS_readlink, "readlink"},
    {SYS_arch_prctl, "arch_prctl"},
#endif
};

}  // namespace

std::string wait_reason(std::uint16_t reason) {
  switch (reason) {
    case WL_WAIT_PREEMPTED: return "preempted";
    case WL_WAIT_FAULT: return "page fault";
    case WL_WAIT_IO: return "I/O";
    case WL_WAIT_OTHER: return "system call";
    case WL_WAIT_STOPPED: return "stopped";
    default: break;
  }
  const int call = reason - WL_WAIT_SYSCALL;
  const auto* const known = std::ranges::find(kCalls, call, &Call::number);
  return known != std::end(kCalls) ? known->name : fmt::format("system call {}", call);
}

}  // namespace windlass::profiler
