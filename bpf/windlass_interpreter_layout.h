/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Where an interpreter keeps the list of its frames, so that it can be read at the sample's moment
 * (windlass_interpreter.h). A wl_interpreter stands behind a set's last mapping, if WL_PROCESS_INTERPRETED is set.
 * Offsets are in bytes.
 */
#ifndef WINDLASS_INTERPRETER_LAYOUT_H
#define WINDLASS_INTERPRETER_LAYOUT_H

#include "windlass_types.h"

enum wl_activations { /* how one activation of the evaluator is told from the next in the list of frames */
                      WL_ACTIVATION_EACH = 0,  /* each frame is one (to CPython 3.10) */
                      WL_ACTIVATION_ENTRY = 1, /* its outermost frame is marked by a byte that is not 0 (3.11) */
                      WL_ACTIVATION_SHIM =
                          2, /* behind its outermost frame is one of the evaluator's own, whose byte is WL_OWNED_BY_C */
};
#define WL_OWNED_BY_C 3

/* Bits of a frame's reference to its code object that are no part of the address (from CPython 3.14 on). No object has
 * any of these bits in its address. */
#define WL_REFERENCE_TAG 7u

#define WL_INTERPRETER_FRAME_BYTES 128u /* Of a frame, at most. */
#define WL_CODE_WORDS 16u               /* Of a code object: the words that make its identity. */

struct wl_python {
  __u64 interpreters;     /* Address of the pointer to the first interpreter. */
  __u32 next_interpreter; /* In an interpreter: the next. */
  __u32 threads;          /* In an interpreter: the first thread state. */
  __u16 next_thread;      /* In a thread state: the next. */
  __u16 thread_id;        /* In a thread state: the thread's pointer (fs.base), as pthread_self() gives it. */
  __u16 current;          /* In a thread state: the innermost frame; with has_c_frame, the C frame. */
  __u16 c_frame_current;  /* In a C frame: the innermost frame. */
  __u16 frame_size;       /* Bytes that are read. */
  __u16 frame_code;       /* In a frame: the code object. */
  __u16 frame_previous;   /* In a frame: the frame that called it. */
  __u16 frame_place;      /* In a frame: its place, an address, or with code_begin == 0 a number. */
  __u16 frame_mark;       /* In a frame: the byte for wl_activations. */
  __u16 code_begin;       /* In a code object: its bytecode. */
  __u16 code_words;       /* In a code object: the first of WL_CODE_WORDS words that never change. */
  __u16 code_version;     /* In a code object: a number that no other code object ever has (from 3.12 on); 0: none. */
  __u16 code_name;        /* In a code object: the name, a string. */
  __u16 code_file;        /* In a code object: the file, a string. */
  __u16 code_lines;       /* In a code object: the table of lines, bytes. */
  __u16 string_hash;      /* In a string. */
  __u16 bytes_size;       /* In bytes: their number. */
  __u16 bytes_begin;      /* In bytes: the bytes themselves. */
  __u8 activations;       /* A wl_activations. */
  __u8 has_c_frame;
  __u8 skipped_word; /* The word of WL_CODE_WORDS that does change; WL_CODE_WORDS: none. */
  __u8 reserved;
};

#define WL_RUBY_STRING_LENGTH 16u /* In a string that is not embedded, or of Ruby 3.2 or later. */

/* Ruby 3.1 to 3.3 (windlass_ruby.h). */
struct wl_ruby {
  __u64 module;  /* Address of the number of the library's thread-local storage, as written by the linker. */
  __u64 context; /* In that storage: the pointer to the execution context that runs. */
  __u16 frame_bytes;
  __u16 machine_stack;  /* In a context: the machine stack's start, its end so far, its size. */
  __u16 compiled;       /* In a body: the first word of what compilers have made of it; */
  __u8 compiled_second; /* other words that tell of it, from there on; 0: none. */
  __u8 compiled_third;
  __u8 string_begin; /* In a string: its text, if that is embedded. */
  __u8 reserved[7];
};

enum wl_interpreter_kind { WL_CPYTHON = 0, WL_RUBY = 1 };

struct wl_interpreter {
  __u32 kind; /* wl_interpreter_kind */
  __u32 reserved;
  union {
    struct wl_python python;
    struct wl_ruby ruby;
  };
};

#endif
