/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The few kernel structs the programs look into. CO-RE finds the fields in the running kernel's BTF, so only names and
 * types matter here, and building needs no BTF of the machine it builds on.
 */
#ifndef WINDLASS_VMLINUX_MIN_H
#define WINDLASS_VMLINUX_MIN_H

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
  int counter;
} atomic_t;

struct ns_common {
  unsigned int inum;
};

struct pid_namespace {
  struct ns_common ns;
};

/* A process id's number in each PID namespace it is in, from the initial one (0) to its own (level). */
struct upid {
  int nr;
  struct pid_namespace* ns;
};

struct pid {
  unsigned int level;
  struct upid numbers[1];
};

struct signal_struct {
  atomic_t live;       /* threads left */
  struct pid* pids[4]; /* by pid_type */
};

struct xol_area {
  unsigned long vaddr; /* [uprobes] */
};

struct uprobes_state {
  struct xol_area* xol_area;
};

struct mm_struct {
  unsigned long start_stack; /* top of the main thread's stack: argc, argv */
  struct uprobes_state uprobes_state;
};

struct return_instance {
  unsigned long stack;
  unsigned long orig_ret_vaddr;
  _Bool chained; /* the next instance is of the same return address */
  struct return_instance* next;
};

struct uprobe;

struct uprobe_task {
  struct return_instance* return_instances;
  struct uprobe* active_uprobe; /* an instruction runs out of its place: */
  unsigned long vaddr;
  unsigned long xol_vaddr;
};

struct desc_struct {
  unsigned short limit0;
};

struct thread_struct {
#ifdef __TARGET_ARCH_arm64
  struct {
    unsigned long tp_value; /* tpidr_el0 */
  } uw;
#else
  struct desc_struct tls_array[3]; /* segments of a 32-bit thread's own */
  unsigned long fsbase;
  unsigned long gsbase;
#endif
};

/* Of the hierarchy that cgroup version 2 has. */
struct kernfs_node {
  unsigned long long id;
};

struct cgroup;

struct cgroup_subsys_state {
  struct cgroup* cgroup;
  struct cgroup_subsys_state* parent;
};

struct cgroup {
  struct cgroup_subsys_state self;
  struct kernfs_node* kn;
};

struct css_set {
  struct cgroup* dfl_cgrp;
};

typedef struct {
  unsigned int val;
} kuid_t;

struct cred {
  kuid_t uid;
};

struct sched_entity {
  unsigned long long sum_exec_runtime; /* ns */
};

struct task_struct {
  struct thread_struct thread;
  unsigned int flags; /* PF_* */
  struct sched_entity se;
  int on_cpu;
  unsigned int __state;
  int pid;
  int tgid;
  char comm[16];
  struct mm_struct* mm;
  struct signal_struct* signal;
  struct pid* thread_pid;
  const struct cred* cred;
  struct css_set* cgroups;
  struct uprobe_task* utask;
  unsigned in_execve : 1;
  unsigned in_iowait : 1;
};

/* The flag PF_USER_WORKER came with its bit (Linux 6.4). */
struct kernel_clone_args {
  unsigned user_worker : 1;
};

struct bpf_iter_meta;

struct bpf_iter__task {
  struct bpf_iter_meta* meta;
  struct task_struct* task;
};

struct file;

struct vm_area_struct {
  unsigned long vm_start;
  unsigned long vm_end;
  unsigned long vm_flags; /* VM_* */
  struct file* vm_file;
};

struct vm_unmapped_area_info {
  unsigned long length;
};

/* The kernel's names; asm/ptrace.h of user space has others. */
#ifdef __TARGET_ARCH_arm64
struct pt_regs___kernel {
  unsigned long long regs[31], sp, pc, pstate;
  int syscallno;
};
#else
struct pt_regs___kernel {
  unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip;
  unsigned long cs, flags, sp, ss;
};
#endif

#pragma clang attribute pop

#define PF_KTHREAD 0x00200000
#define PF_IO_WORKER 0x00000010   /* of io_uring; since Linux 5.12 */
#define PF_USER_WORKER 0x00004000 /* of vhost, and of io_uring; up to Linux 5.16 the bit said something else */
#define TASK_UNINTERRUPTIBLE 0x00000002
#define TASK_DEAD 0x00000080
#define TASK_STOPPED_BITS 0x0000800c /* __TASK_STOPPED, __TASK_TRACED, TASK_FROZEN (Linux 6.1) */
#define VM_EXEC 0x00000004
#define WL_PIDTYPE_TGID 1 /* enum pid_type, since Linux 4.19 */

#endif
