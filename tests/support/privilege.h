// Whether this process may sample: the one thing for whose want a test of the profiler is skipped. The kernel is asked
// with what it can refuse for no other reason: no verifier rejects a BPF program of two instructions.
#pragma once

#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

namespace windlass::test {

// The error of a system call that made a descriptor; 0 if it did.
inline int error_of(long descriptor) {
  const int error = descriptor < 0 ? errno : 0;
  if (descriptor >= 0) close(static_cast<int>(descriptor));
  return error;
}

inline int try_bpf() {
  const bpf_insn program[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0},
                              {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0}};
  bpf_attr attributes{};
  attributes.prog_type = BPF_PROG_TYPE_PERF_EVENT;
  attributes.insns = reinterpret_cast<std::uint64_t>(program);
  attributes.insn_cnt = 2;
  attributes.license = reinterpret_cast<std::uint64_t>("GPL");
  return error_of(syscall(SYS_bpf, BPF_PROG_LOAD, &attributes, sizeof attributes));
}

inline int try_perf() {
  perf_event_attr attributes{};
  attributes.size = sizeof attributes;
  attributes.type = PERF_TYPE_SOFTWARE;
  attributes.config = PERF_COUNT_SW_CPU_CLOCK;
  return error_of(syscall(SYS_perf_event_open, &attributes, -1, 0, -1, PERF_FLAG_FD_CLOEXEC));
}

// Empty if it may; else what to skip with. Any other refusal is for the test to fail on.
inline std::string no_privilege_to_sample() {
  for (const int error : {try_bpf(), try_perf()})
    if (error == EPERM || error == EACCES) return "no privilege to sample: run it as root";
  return "";
}

}  // namespace windlass::test
