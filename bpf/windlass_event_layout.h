/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The events that the kernel side sends to the agent.
 */
#ifndef WINDLASS_EVENT_LAYOUT_H
#define WINDLASS_EVENT_LAYOUT_H

#include "windlass_ends.h"
#include "windlass_types.h"

#define WL_MAX_USER_FRAMES 8192u
#define WL_MAX_KERNEL_FRAMES 127u /* The most that bpf_get_stack gives by default (kernel.perf_event_max_stack). */
#define WL_MAX_RAW_STACK (256u * 1024u)
#define WL_MAX_RAW_PIECE (WL_MAX_RAW_STACK / 2) /* Of each stack, if there are two. */
#define WL_FIRST_STACK (8u * 1024u)             /* Of a thread's first stack, if the thread is on another one. */
#define WL_FIRST_STACK_FAR (64ull << 20)        /* Farther below, a main thread is on another one. */
#define WL_RAW_PAGE 4096u                       /* The unit of copying; no page of any kernel is smaller. */
#define WL_MAX_RAW_PAGES 64u                    /* The pages that a copy spans, with pages left out. */
#define WL_RED_ZONE 128u
#define WL_SWITCH_ROOM (20u * 1024u) /* Bytes of an Erlang scheduler's registers, below its caller. */
/* Bytes of the arguments. By these the agent knows where the kernel left sp for the process's first instruction. */
#define WL_ARGUMENTS 512
#define WL_COMM 16
#define WL_MOST_HALVINGS 7u /* Of the rate: wl_event_head.extra is below 128. */

enum wl_event_type {
  WL_EVENT_STACK = 1,  /* A wl_stack_event: a sample, usually of a stack not seen before; repeats are counted in the
                        * kernel. Samples of a stack = its events + its count. Of a wait: its begin, which counts when
                        * it ends. */
  WL_EVENT_RAW = 2,    /* A wl_raw_event: registers and raw stack, for the agent to unwind. */
  WL_EVENT_EXEC = 3,   /* A wl_process_event. */
  WL_EVENT_FORK = 4,   /* A wl_process_event. */
  WL_EVENT_EXIT = 5,   /* A wl_process_event: the last thread has ended. */
  WL_EVENT_UNMAP = 6,  /* A wl_process_event: a mapping in [address, address + length) is gone, others may come. */
  WL_EVENT_TIME = 7,   /* A wl_time_event, with wl_timeline: of a sample that is only counted, or a wait that ended. */
  WL_EVENT_LABELS = 8, /* A wl_label_event: before the first sample that has the labels. */
  WL_EVENT_WAKER = 9,  /* A wl_waker_event: whoever ended a wait. */
};

/* What a thread waits for (wl_event_head.reason); 0: the sample is no wait. */
enum wl_wait_reason {
  WL_WAIT_PREEMPTED = 1, /* For a CPU, on which others run. */
  WL_WAIT_FAULT = 2,     /* In an exception: most often for a page that is not in memory. */
  WL_WAIT_IO = 3,        /* For a block device (task_struct.in_iowait). */
  WL_WAIT_OTHER = 4,     /* In a system call of another machine's numbers. */
  WL_WAIT_STOPPED = 5,   /* By a signal, a debugger or the freezer of cgroups. */
  WL_WAIT_ENDED = 6,     /* Not at all: the stack is of a thread that ends another one's wait, and counts nothing. */
  WL_NO_WAIT = 7,        /* For nothing. As of a wait, the counts alone say how much the sample stands for. */
  WL_WAIT_SYSCALL = 16,  /* And above: in the system call of this number, behind 16. */
};

/* In the cookie of a probe, above the event's number. */
#define WL_ARGUMENT_SHIFT 32u

/* The common part of samples with the same stack. */
struct wl_stack_key {
  __u64 hash; /* Of all frames, end and space. */
  __u32 tgid;
  __u32 tid;
};

/* What is counted under a key. */
struct wl_count {
  __u64 count;
  __u64 value; /* The sum of the samples' own values; 0 for those of an event with a period. */
  __u64 told;  /* 1: the agent has the stack's event. 0: only a wait with this stack has ended. */
};

/* A thread that waits, and the stack that it waits with. */
struct wl_wait {
  __u64 since; /* CLOCK_MONOTONIC ns; 0: it does not. */
  __u64 ran;   /* The thread's CPU time then, in ns. */
  struct wl_stack_key key;
  __u64 may_be_lock; /* 1: the thread may wait for a lock. Which futexes are locks is told by the agent. */
};

/* Whose wakers are walked. */
enum wl_wakers { WL_WAKERS_NONE = 0, WL_WAKERS_OF_LOCKS = 1, WL_WAKERS_OF_ALL = 2 };

struct wl_event_head {
  __u8 type;    /* wl_event_type */
  __u8 extra;   /* Of a tick of CPU time: the ticks before it that were left out, which it stands for, too. */
  __u16 event;  /* Of a sample: which of the recording's events. */
  __u16 reason; /* wl_wait_reason */
  __u16 cpu;
  __u64 time; /* CLOCK_MONOTONIC ns, also the clock of the agent's perf events. */
  __u32 tgid;
  __u32 tid;
  char comm[WL_COMM];
  __u64 labels; /* Of a sample, and of a wl_label_event: which labels its thread has; 0: none. */
};

struct wl_label_event {
  struct wl_event_head head;
  __u32 kind; /* wl_label_kind */
  __u32 size; /* Bytes of a wl_label_text behind this. */
};

struct wl_stack_event {
  struct wl_event_head head;
  __u64 hash;
  __u64 epoch; /* wl_process.epoch; 0 if space is 0. */
  __u32 space;
  __u16 user_frames;
  __u8 kernel_frames;
  __u8 end : 6;       /* wl_end */
  __u8 certainty : 2; /* wl_certainty */
  __u32 interpreted_frames;
  __u32 taken_words;
  /* Followed by u64 kernel[kernel_frames], then u64 user[user_frames], then wl_interpreted_frame[interpreted_frames],
   * each innermost first. A user frame with WL_FRAME_EXACT set is an instruction pointer (frame 0, below a signal
   * frame). Otherwise it is a return address. Then u64 taken[taken_words]: a wl_taken_head and its words for each frame
   * that has any (windlass_learned_layout.h). */
};
#define WL_FRAME_EXACT (1ull << 63)

#define WL_MAX_RAW_INTERPRETED_FRAMES 1024u /* With a raw stack. */

#define WL_RAW_REGISTERS 33u /* Room for any machine's. */

/* A word of the process's memory; none if the address is 0. */
struct wl_word {
  __u64 address;
  __u64 value;
};

/* Words of other memory than stacks that a sample has, as far as the walk read them. */
enum wl_sampled_word {
  /* On a way from the thread's pointer to a stack pointer of another stack (WL_CFA_THREAD): */
  WL_WAY_FIRST = 0, /* By the thread's pointer: the g of Go whose stack the thread is on. */
  WL_WAY_SECOND = 1,
  WL_WAY_KEEPER = 2, /* The keeper of the stack pointer: the g of Go that the thread runs, or will run again. */
  WL_WAY_SP = 3,     /* The stack pointer. */
  WL_WAY_PC = 4,     /* The word behind it. */
  WL_WAY_LOW = 5,    /* The keeper's first two words: its stack's bounds (Go). */
  WL_WAY_HIGH = 6,
  /* Of a frame that is in an object instead of on the stack (WL_HELD): */
  WL_HELD_FRAME = 7, /* The frame's description. */
  WL_HELD_SIZE = 8,
  WL_HELD_FP = 9,      /* Where the frame's frame pointer leads in the frame: the caller's frame pointer. */
  WL_HELD_RETURN = 10, /* The return address behind it. */
  /* Of a program for Windows: */
  WL_THREAD_SLOT = 11, /* The variable that has the offset in the TEB, */
  WL_THREAD_WORD = 12, /* and the word there: the thread's pointer. */
  /* Of functions with uretprobes: the return addresses that the kernel keeps, at their places on the stack. These hold
   * the event's probed_pc. On AArch64 each may be anywhere, and has the caller's stack pointer for an address. */
  WL_PROBED_RETURN = 13,
};
#define WL_WAY_WORDS 7u /* the first ones */
#define WL_PROBED_RETURNS 4u
#define WL_WORDS (WL_PROBED_RETURN + WL_PROBED_RETURNS)

struct wl_raw_event {
  struct wl_event_head head;
  __u64 regs[WL_RAW_REGISTERS]; /* User registers by DWARF number, then the pc. */
  __u32 reason;                 /* The wl_end that made the kernel side give up. */
  __u32 space;
  __u32 stack_size; /* Bytes copied of the stack, from stack_address up. */
  __u16 code_size;  /* Bytes of code copied from around the pc, starting at pc - code_before. */
  __u8 code_before;
  __u8 kernel_frames;
  __u64 second_address; /* Where the walk had come to, if that is on another stack (Wine's Windows side). */
  __u32 second_size;
  __u32 machine; /* wl_machine */
  /* The pages that the copies have: bit n is page n, counted from the page that the copy begins in. Pages that could
   * not be read are left out of the copies: never touched, as most of a large local array, or taken out for a
   * moment. */
  __u64 stack_pages;
  __u64 second_pages;
  __u64 stack_address;  /* Below the stack pointer by the red zone, where leaves keep data (psABI 3.2.2). */
  __u64 epoch;          /* wl_process.epoch; 0 if space is 0. */
  __u64 gs_base;        /* x86-64: of the thread; 0: none. */
  __u64 teb_frame;      /* The word at gs_base + WL_WINE_TEB_FRAME. */
  __u64 thread_pointer; /* x86-64: fs.base; 0: not known. */
  struct wl_word words[WL_WORDS];
  __u64 probed_pc; /* The address of the kernel's that stands for WL_PROBED_RETURN; 0: none. */
  __u64 hash;      /* Of a wait: as in its key. */
  __u64 interpreted_frames;
  /* Followed by u64 kernel[kernel_frames], u8 code[code_size padded to 8], u8 stack[stack_size], u8
   * second_stack[second_size], wl_interpreted_frame[interpreted_frames]. */
};

struct wl_time_event {
  struct wl_event_head head; /* Without comm. The time is the sample's, or that of the wait's begin. */
  __u64 hash;                /* With the head's tgid and tid: the stack's key. */
  __u64 lasted;              /* Of a wait: ns. */
};

/* Of a wait that is about to end. */
struct wl_waker_event {
  struct wl_event_head head; /* The thread that waits, and the name of the one that ends the wait; empty: nobody ran. */
  __u64 hash;                /* Of the wait's key from now on. */
  __u64 wait_hash;           /* Of its key before. */
  struct wl_stack_key waker; /* Of the stack of the one that ends it; hash 0: there is none. */
};

struct wl_process_event {
  struct wl_event_head head;
  __u64 epoch;   /* The new epoch; FORK: the child's. */
  __u64 address; /* UNMAP: the first address. FORK: the child's tgid. */
  __u64 length;
};

#endif
