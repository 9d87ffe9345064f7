/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Process and thread ids as the agent knows them. In the initial PID namespace these are the kernel's own ids. An agent
 * in another namespace has its ids from /proc and perf events, which use that namespace's. So these functions use the
 * agent's namespace.
 *
 * bpf_get_ns_current_pid_tgid() would not do. It knows the current task only, not a fork's child. It also refuses tasks
 * in namespaces below the agent's, although these have ids in the agent's namespace: for example a container started in
 * a container.
 */
#ifndef WINDLASS_IDS_BPF_H
#define WINDLASS_IDS_BPF_H

/* Inode of the agent's PID namespace; 0: the initial one. Numbers of namespaces are unique, whatever their kind, since
 * all come from one pool (proc_alloc_inum() in fs/proc/generic.c). */
const volatile __u32 wl_pidns_ino = 0;

#define WL_PIDNS_LEVELS 33 /* MAX_PID_NS_LEVEL in include/linux/pid_namespace.h, and the initial one */

/* The number in the agent's namespace; 0: outside of it, or no process any more. A global function: the verifier looks
 * at its loop once. It takes the address as a number, since global functions take no kernel pointers before 6.8. */
WL_GLOBAL __u32 wl_number_in_namespace(__u64 address) {
  const struct pid* pid = (const struct pid*)address;
  if (!pid) return 0;
  __u32 level = BPF_CORE_READ(pid, level);
  const char* numbers = (const char*)pid + bpf_core_field_offset(pid->numbers);
  for (__u32 i = 0; i < WL_PIDNS_LEVELS; i++) {
    if (i > level) break;
    const struct upid* upid = (const struct upid*)(numbers + (level - i) * bpf_core_type_size(struct upid));
    if (BPF_CORE_READ(upid, ns, ns.inum) == wl_pidns_ino) return BPF_CORE_READ(upid, nr);
  }
  return 0;
}

WL_INLINE __u32 wl_task_tgid(struct task_struct* task) {
  if (!wl_pidns_ino) return BPF_CORE_READ(task, tgid);
  return wl_number_in_namespace((__u64)BPF_CORE_READ(task, signal, pids[WL_PIDTYPE_TGID]));
}

/* As wl_current_ids, for an agent in a namespace; a function of its own, for what it puts on the stack. */
WL_GLOBAL __u64 wl_current_ids_in_namespace(void) {
  struct task_struct* task = bpf_get_current_task_btf();
  __u64 tgid = wl_task_tgid(task);
  return tgid << 32 | wl_number_in_namespace((__u64)BPF_CORE_READ(task, thread_pid));
}

WL_INLINE __u32 wl_task_tid(struct task_struct* task) {
  return wl_pidns_ino ? wl_number_in_namespace((__u64)BPF_CORE_READ(task, thread_pid)) : BPF_CORE_READ(task, pid);
}

/* tgid << 32 | tid of the current task; 0 if it is outside of the agent's namespace (or idle). */
WL_INLINE __u64 wl_current_ids(void) {
  return wl_pidns_ino ? wl_current_ids_in_namespace() : bpf_get_current_pid_tgid();
}

#endif
