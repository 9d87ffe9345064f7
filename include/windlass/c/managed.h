/* Windlass for managed runtimes, the C interface: explicit frames, the walk over managed and native frames, GC roots,
 * two-pass exceptions, suspension. docs/how-to/write-a-runtime-walker.md says how the parts work together. The C++
 * headers use the same names and say more: windlass/managed/explicit_frame.h, managed/walk.h, managed/gc_roots.h,
 * managed/exception.h and managed/suspension.h. x86-64 and AArch64, Linux.
 *
 * A program has one runtime, and a mutator for each thread that runs managed code:
 *
 *   windlass_runtime* runtime;
 *   windlass_mutator* self;
 *
 *   windlass_open_runtime(&callbacks, &runtime, NULL);
 *   windlass_open_mutator(runtime, NULL, &self, NULL);
 *
 * For example, a helper that managed code calls, and that walks the stack (thread.mutator is self):
 *
 *   void helper(void) {
 *     windlass_context_frame frame = {{.kind = WINDLASS_FRAME_HELPER, .form = WINDLASS_FORM_LAZY}};
 *     windlass_capture_frame(&frame);
 *
 *     windlass_push_frame(windlass_mutator_frames(self), &frame.header);
 *     windlass_walk_managed(&thread, NULL, 0, each_frame, NULL, NULL, NULL);
 *
 *     windlass_pop_frame(windlass_mutator_frames(self), &frame.header);
 *   }
 *
 * The conventions of c/windlass.h hold. A function marked [signal] is signal-safe if the runtime's callbacks are.
 * Callbacks neither throw nor jump out. */
#ifndef WINDLASS_C_MANAGED_H
#define WINDLASS_C_MANAGED_H

#include "windlass/c/windlass.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define WINDLASS_NORETURN __attribute__((noreturn))
#else
#define WINDLASS_NORETURN
#endif

/* ---- explicit frames --------------------------------------------------------------------------------------- */

/* The layout is fixed, for generated code too: see the offsets below. These structs have no `size`. */
enum { /* Values of windlass_explicit_frame.kind. */
       WINDLASS_FRAME_INLINED_CALL = 0,
       WINDLASS_FRAME_HELPER = 1,
       WINDLASS_FRAME_CALLBACK = 2,
       WINDLASS_FRAME_TRANSITION = 3,
       WINDLASS_FRAME_FAULTING = 4,
       WINDLASS_FRAME_HIJACKED = 5,
       WINDLASS_FRAME_REDIRECTED = 6,
       WINDLASS_FRAME_TAIL_CALL = 7,
       WINDLASS_FRAME_EXCEPTION_FILTER = 8,
       WINDLASS_FRAME_DEBUGGER_MARKER = 9,
       WINDLASS_FRAME_FUNCTION_EVALUATION = 10,
       WINDLASS_FRAME_USER = 0x100 /* From here on: the runtime's own kinds. */
};
enum {                              /* Values of windlass_explicit_frame.form: the data behind the header. */
       WINDLASS_FORM_MARKER = 0,    /* Nothing. */
       WINDLASS_FORM_CALL_SITE = 1, /* pc, sp and frame pointer of a call that is under way; pc 0: no call is. */
       WINDLASS_FORM_SAVED = 2,     /* windlass_saved_context: the registers that calls preserve. The code that made
                                     * the frame restores them from it. */
       WINDLASS_FORM_CONTEXT = 3,   /* windlass_saved_context of an interrupted instruction. */
       WINDLASS_FORM_LAZY = 4       /* windlass_saved_context of native code: the caller is found on demand. */
};
/* Bits of windlass_explicit_frame.attributes. */
#define WINDLASS_FRAME_STANDS_FOR_FUNCTION 1u /* Shown as a function: `user`. */
#define WINDLASS_FRAME_HAS_FAULTED 2u         /* The managed code behind the frame will not go on. */
#define WINDLASS_FRAME_ABORTED 4u             /* The frame's references are no longer roots. */
/* Bits of the words at windlass_explicit_frame.references, beside the 8-aligned address. */
#define WINDLASS_REFERENCE_INTERIOR 1u /* The reference may point into the middle of an object. */
#define WINDLASS_REFERENCE_PINNED 2u   /* The object may not move. */
/* The end of a list of frames. */
#define WINDLASS_END_OF_FRAMES UINT64_MAX

/* The header of an explicit frame. */
typedef struct windlass_explicit_frame {
  uint64_t next;   /* The address of the next outer frame. */
  uint64_t cookie; /* The list's cookie ^ this frame's address. */
  uint16_t kind;
  uint8_t form;
  uint8_t attributes;
  uint32_t reference_count;
  uint64_t references; /* The address of reference_count words, WINDLASS_REFERENCE_...: each is the address of an
                        * object reference, a root. */
  uint64_t user;
} windlass_explicit_frame;
/* A frame of the form WINDLASS_FORM_CALL_SITE. */
typedef struct windlass_call_site_frame {
  windlass_explicit_frame header;
  uint64_t pc;
  uint64_t sp;
  uint64_t fp;
} windlass_call_site_frame;
/* Registers of a frame. */
typedef struct windlass_saved_context {
  uint64_t known; /* Bit n: value[n] is known. Indexes are as in windlass_registers. */
  uint64_t return_address;
  uint64_t value[44];
} windlass_saved_context;
/* A frame of the forms SAVED, CONTEXT and LAZY. */
typedef struct windlass_context_frame {
  windlass_explicit_frame header;
  windlass_saved_context context;
} windlass_context_frame;
/* The explicit frames of a thread. */
typedef struct windlass_frame_list {
  uint64_t top; /* The address of the innermost frame. */
  uint64_t cookie;
} windlass_frame_list;

/* For code generators. To link a frame whose words are written: load top, store it to next, store the frame's address
 * to top. */
#define WINDLASS_LIST_TOP_OFFSET 0
#define WINDLASS_LIST_COOKIE_OFFSET 8
#define WINDLASS_FRAME_NEXT_OFFSET 0
#define WINDLASS_FRAME_COOKIE_OFFSET 8
#define WINDLASS_FRAME_KIND_OFFSET 16
#define WINDLASS_FRAME_FORM_OFFSET 18
#define WINDLASS_FRAME_ATTRIBUTES_OFFSET 19
#define WINDLASS_FRAME_REFERENCE_COUNT_OFFSET 20
#define WINDLASS_FRAME_REFERENCES_OFFSET 24
#define WINDLASS_FRAME_USER_OFFSET 32
#define WINDLASS_CALL_SITE_PC_OFFSET 40
#define WINDLASS_CALL_SITE_SP_OFFSET 48
#define WINDLASS_CALL_SITE_FP_OFFSET 56
#define WINDLASS_FRAME_CONTEXT_OFFSET 40

/* Makes an empty list, with the cookie of this process. [any] */
WINDLASS_API windlass_status windlass_frame_list_init(windlass_frame_list* list);
/* Pushes and pops a frame of the calling thread's list. Pushing sets `next` and `cookie`. [signal] */
WINDLASS_API void windlass_push_frame(windlass_frame_list* list, windlass_explicit_frame* frame);
WINDLASS_API void windlass_pop_frame(windlass_frame_list* list, const windlass_explicit_frame* frame);
/* Stores the caller's registers in a frame of the form SAVED or LAZY, as they are when this returns. [signal] */
WINDLASS_API void windlass_capture_frame(windlass_context_frame* frame);

/* ---- the runtime ------------------------------------------------------------------------------------------- */

/* The kind of a funclet. */
enum { WINDLASS_NO_FUNCLET = 0, WINDLASS_FILTER = 1, WINDLASS_CATCH = 2, WINDLASS_FINALLY = 3, WINDLASS_FAULT = 4 };

/* Where a frame keeps a value. For example, {WINDLASS_AT_CFA, 0, -16} is the word 16 bytes below the CFA. */
enum {
  WINDLASS_NOWHERE = 0,
  WINDLASS_IN_REGISTER = 1,
  WINDLASS_AT_CFA = 2,
  WINDLASS_AT_SP = 3,
  WINDLASS_AT_REGISTER = 4
};
typedef struct windlass_place {
  uint16_t base; /* WINDLASS_NOWHERE, ... */
  uint16_t reg;  /* A DWARF number. */
  int32_t offset;
} windlass_place;

/* An entry of a method's exception table. Inner clauses come before those around them. */
enum { WINDLASS_CLAUSE_CATCH = 0, WINDLASS_CLAUSE_FILTER = 1, WINDLASS_CLAUSE_FINALLY = 2, WINDLASS_CLAUSE_FAULT = 3 };
typedef struct windlass_clause {
  uint32_t kind;
  uint32_t begin; /* The protected code, [begin, end): offsets in the method's code. */
  uint32_t end;
  uint32_t reserved;
  uint64_t handler; /* The address of the funclet, called as uint64_t f(uint64_t base, uint64_t object). */
  uint64_t filter;  /* For WINDLASS_CLAUSE_FILTER: the address of the filter; 1: every exception. */
  uint64_t user;    /* The runtime's own, for example the type that is caught. */
  uint64_t resume;  /* Without a handler: where the method itself handles the exception, with the object in rax or
                     * x0. */
} windlass_clause;

/* A function of managed code, or a funclet. These handles are not checked: walks use them as find() gives them. */
typedef struct windlass_method windlass_method;
#define WINDLASS_TRANSPARENT 1u /* A helper that windlass_find_managed_caller looks past. */
/* The facts about a method. */
typedef struct windlass_method_description {
  size_t size;
  uint64_t begin;                /* The first address of the code. */
  uint64_t end;                  /* The address behind the last. */
  uint64_t id;                   /* The runtime's own name for the method. */
  const windlass_method* parent; /* For a funclet: its method. NULL: none. Made before the funclet, freed after it. */
  uint32_t funclet;              /* WINDLASS_NO_FUNCLET, ... */
  uint32_t flags;                /* WINDLASS_TRANSPARENT. */
  /* Windows unwind information, used if windows_info is not 0: RVAs from the address windows_base. On ARM64,
   * windows_info is the second word of the function's only entry, and windows_end is 0. Without it, frames are unwound
   * by rows: windlass_add_own_code, a code manager, or the program's own call frame information. */
  uint64_t windows_base;
  uint32_t windows_begin;
  uint32_t windows_end;
  uint32_t windows_info;
  uint32_t clause_count;
  const windlass_clause* clauses; /* Copied. */
  const void* roots;              /* The bytes of windlass_encode_stack_map, copied; NULL: no stack map. */
  size_t roots_size;
  windlass_place this_object;
  windlass_place generic_context; /* Says the exact types of shared generic code. */
  windlass_place guard;           /* Holds windlass_runtime_callbacks.guard_value, to detect overwritten frames. */
} windlass_method_description;

/* Makes a method. WINDLASS_MALFORMED for an empty range, an unknown kind, or a wrong stack map. [any] */
WINDLASS_API windlass_status windlass_make_method(const windlass_method_description* description,
                                                  windlass_method** method, windlass_error* error);
/* Frees a method; NULL is allowed. Not while a walk may still see the method. */
WINDLASS_API void windlass_free_method(windlass_method* method);
/* The runtime's own name for the method. [signal] */
WINDLASS_API uint64_t windlass_method_id(const windlass_method* method);

/* The state of a walk, valid during the callback. */
typedef struct windlass_crawl windlass_crawl;
typedef struct windlass_crawl_frame windlass_crawl_frame;
typedef struct windlass_root windlass_root;
/* Called for each root. */
typedef void (*windlass_root_callback)(const windlass_root* root, void* user);

/* The runtime, as a walk sees it. */
typedef struct windlass_runtime_callbacks {
  size_t size;
  /* The method whose code contains an address, or NULL. Called on every walking thread, in signal handlers too. */
  const windlass_method* (*find)(uint64_t pc, void* user);
  /* May be NULL. True if an object is at this address. Called for `this`, unless WINDLASS_ALLOW_INVALID_OBJECTS is
   * given. */
  int (*is_object)(uint64_t reference, void* user);
  /* A number from windlass_new_generation() that changes whenever rows change. May be NULL: walkers keep no rows. */
  uint64_t (*generation)(void* user);
  void* user;
  uint64_t guard_value;
  /* May be NULL. Calls `sink` for each reference among the arguments of a transition frame's callee. For
   * windlass_each_root, which fails as WINDLASS_UNSUPPORTED unless this returns WINDLASS_OK. */
  windlass_status (*each_argument)(const windlass_crawl* crawl, const windlass_crawl_frame* frame,
                                   windlass_root_callback sink, void* to, void* user);
} windlass_runtime_callbacks;
typedef struct windlass_runtime windlass_runtime;

/* Opens a runtime. `callbacks` are copied. [any] */
WINDLASS_API windlass_status windlass_open_runtime(const windlass_runtime_callbacks* callbacks,
                                                   windlass_runtime** runtime, windlass_error* error);
/* Closes a runtime, after its mutators and its suspender. */
WINDLASS_API windlass_status windlass_close_runtime(windlass_runtime* runtime);
/* A number never given before in this process; never 0. [signal] */
WINDLASS_API uint64_t windlass_new_generation(void);

/* A thread of this process that runs managed code: its explicit frames, exceptions and mode. */
typedef struct windlass_mutator windlass_mutator;
struct windlass_personality;

/* Opens a mutator. `personality` is copied; NULL: the thread does not throw. [any] */
WINDLASS_API windlass_status windlass_open_mutator(windlass_runtime* runtime,
                                                   const struct windlass_personality* personality,
                                                   windlass_mutator** mutator, windlass_error* error);
/* Closes a mutator that is detached, has no frames, and has no exception under way. */
WINDLASS_API windlass_status windlass_close_mutator(windlass_mutator* mutator);
/* The mutator's list of explicit frames, valid while the mutator is open. NULL if it is not. [signal] */
WINDLASS_API windlass_frame_list* windlass_mutator_frames(windlass_mutator* mutator);

/* ---- the walk ---------------------------------------------------------------------------------------------- */

/* A thread, for walks. For a thread of this process: `mutator`, and nothing else. For another process or a dump: the
 * other members. */
typedef struct windlass_managed_thread {
  size_t size;
  const windlass_mutator* mutator;
  const windlass_space* space;
  const windlass_runtime* runtime;
  uint64_t frames; /* windlass_frame_list.top and its cookie. */
  uint64_t cookie;
  uint64_t exceptions; /* WINDLASS_END_OF_FRAMES: none. */
} windlass_managed_thread;

/* Flags with CoreCLR's meaning: see windlass/managed/walk.h. */
#define WINDLASS_FUNCTIONS_ONLY (1u << 0)
#define WINDLASS_SKIP_FUNCLETS (1u << 1)
#define WINDLASS_POP_FRAMES (1u << 2)
#define WINDLASS_QUICK_UNWIND (1u << 3)
#define WINDLASS_LIGHT_UNWIND (1u << 4)
#define WINDLASS_HANDLE_SKIPPED_FRAMES (1u << 5)
#define WINDLASS_NOTIFY_ON_UNMANAGED_TO_MANAGED (1u << 6)
#define WINDLASS_DISABLE_MISSING_FRAME_DETECTION (1u << 7)
#define WINDLASS_ALLOW_ASYNC_WALK (1u << 8)
#define WINDLASS_THREAD_IS_SUSPENDED (1u << 9)
#define WINDLASS_ALLOW_INVALID_OBJECTS (1u << 10)
#define WINDLASS_NOTIFY_ON_NO_FRAME_TRANSITIONS (1u << 11)
#define WINDLASS_NOTIFY_ON_INITIAL_NATIVE_CONTEXT (1u << 12)
#define WINDLASS_GC_FUNCLET_REFERENCES (1u << 13)
#define WINDLASS_SKIP_COOKIE_CHECK (1u << 14)
#define WINDLASS_NATIVE_FRAMES (1u << 15)

enum { /* Values of windlass_crawl_frame.state. */
       WINDLASS_FRAMELESS = 1,
       WINDLASS_FRAME_FUNCTION = 2,
       WINDLASS_SKIPPED_FRAME = 3,
       WINDLASS_NO_FRAME_TRANSITION = 4,
       WINDLASS_NATIVE_MARKER = 5,
       WINDLASS_INITIAL_NATIVE_CONTEXT = 6,
       WINDLASS_NATIVE_FRAME = 7
};
/* Bits of windlass_crawl_frame.flags, besides WINDLASS_RETURN_ADDRESS. */
#define WINDLASS_IS_FIRST 2u       /* The first of the frames that have code. */
#define WINDLASS_IS_INTERRUPTED 4u /* The frame stands at an instruction: nothing was called. */
#define WINDLASS_HAS_FAULTED 8u    /* The frame will not go on from here. */
#define WINDLASS_REPORTS_ROOTS 16u /* Cleared only with WINDLASS_GC_FUNCLET_REFERENCES. */
#define WINDLASS_SAVED_KNOWN 32u   /* Cleared with quick and light unwind. */

/* A frame of a walk. */
struct windlass_crawl_frame {
  size_t size;
  uint32_t state;
  uint32_t flags;
  uint64_t pc; /* 0 if no register is known. */
  uint64_t sp;
  uint64_t cfa;                  /* Frameless: the caller's sp behind the call. */
  uint64_t function;             /* The runtime's number of the function that the frame stands for; 0: none. */
  const windlass_method* method; /* Frameless. */
  uint64_t exception;            /* No-frame transition: the address of the record. */
  uint64_t frame;                /* Explicit frame: its address and members. */
  uint64_t frame_user;
  uint16_t frame_kind;
  uint8_t frame_form;
  uint8_t frame_attributes;
  uint32_t reserved;
};

/* Returned by a callback: go on, end the walk, or end and undo. */
enum { WINDLASS_CONTINUE = 0, WINDLASS_STOP = 1, WINDLASS_ABORT = 2 };
typedef int (*windlass_crawl_callback)(const windlass_crawl* crawl, const windlass_crawl_frame* frame, void* user);

/* How a walk ended. */
enum {
  WINDLASS_WALK_DONE = 0,
  WINDLASS_WALK_STOPPED = 1, /* The callback stopped it. With WINDLASS_POP_FRAMES, the passed frames are off the
                              * list. */
  WINDLASS_WALK_ABORTED = 2, /* The callback stopped it. The list is as before the walk. */
  WINDLASS_WALK_FAILED = 3   /* See `error`. */
};
/* Calls `callback` for each frame, innermost first. `registers` are where the thread is. NULL: the thread is in native
 * code, and the walk begins at its explicit frames. A walk that fails is still WINDLASS_OK: `outcome` (may be NULL) and
 * `error` tell the failure. [signal] */
WINDLASS_API windlass_status windlass_walk_managed(const windlass_managed_thread* thread,
                                                   const windlass_registers* registers, uint32_t flags,
                                                   windlass_crawl_callback callback, void* user, uint32_t* outcome,
                                                   windlass_error* error);
/* The registers of the callback's frame, a register's value, and the address where it was saved. `address` as for
 * windlass_saved_at. [signal] */
WINDLASS_API windlass_status windlass_crawl_registers(const windlass_crawl* crawl, windlass_registers* registers);
WINDLASS_API windlass_status windlass_crawl_get(const windlass_crawl* crawl, uint32_t number, uint64_t* value);
WINDLASS_API windlass_status windlass_crawl_saved_at(const windlass_crawl* crawl, uint32_t number, uint64_t* address);
/* The value at a place of a frameless frame: any place, `this`, or the generic context. WINDLASS_NOT_FOUND if the frame
 * has no such place, or the register is not known. WINDLASS_UNREADABLE. [signal] */
WINDLASS_API windlass_status windlass_crawl_value(const windlass_crawl* crawl, windlass_place place, uint64_t* value);
WINDLASS_API windlass_status windlass_crawl_this(const windlass_crawl* crawl, uint64_t* value);
WINDLASS_API windlass_status windlass_crawl_generic_context(const windlass_crawl* crawl, uint64_t* value);

/* Stack crawl marks: which method above the calling native code, not counting transparent methods. WINDLASS_NOT_FOUND
 * if there is none. [signal] */
enum { WINDLASS_MYSELF = 0, WINDLASS_MY_CALLER = 1, WINDLASS_MY_CALLERS_CALLER = 2 };
WINDLASS_API windlass_status windlass_find_managed_caller(const windlass_managed_thread* thread,
                                                          const windlass_registers* registers, uint32_t mark,
                                                          windlass_crawl_frame* frame, windlass_error* error);

/* ---- GC roots ---------------------------------------------------------------------------------------------- */

#define WINDLASS_INTERIOR 1u /* May point into the middle of an object. */
#define WINDLASS_PINNED 2u   /* The object may not move. */
#define WINDLASS_DERIVED 4u  /* windlass_root: points into the object at `base`. Comes before the root of its base. */

/* A place that can hold a reference. */
typedef struct windlass_root_slot {
  windlass_place place; /* Offsets are multiples of 8. */
  uint32_t flags;       /* WINDLASS_INTERIOR, WINDLASS_PINNED. */
} windlass_root_slot;
/* A pointer into an object that another slot refers to. */
typedef struct windlass_derived_slot {
  windlass_root_slot slot;
  windlass_root_slot base;
} windlass_derived_slot;
/* The live slots at a place of the code. */
typedef struct windlass_root_site {
  uint32_t offset; /* The offset into the code: behind a call, or of the instruction of a safe point. */
  uint32_t live_count;
  const windlass_root_slot* live;
} windlass_root_site;
/* The live slots of a method. */
typedef struct windlass_stack_map {
  size_t size;
  uint32_t code_size;
  uint32_t always_count;
  const windlass_root_slot* always; /* Live throughout. No others are live once the frame has faulted. */
  const windlass_derived_slot* derived;
  size_t derived_count;
  const windlass_root_site* sites; /* Ascending. */
  size_t site_count;
} windlass_stack_map;
/* Encodes the bytes for windlass_method_description.roots. Writes at most `capacity` bytes to `bytes`, which may be
 * NULL if that is 0. `needed` becomes the number of bytes. WINDLASS_LIMIT if they do not fit; then nothing is written.
 * Other errors as encode() in windlass/managed/gc_roots.h. [any] */
WINDLASS_API windlass_status windlass_encode_stack_map(const windlass_stack_map* map, void* bytes, size_t capacity,
                                                       size_t* needed, windlass_error* error);

/* A reference that a frame holds. */
struct windlass_root {
  uint64_t value;   /* The reference. */
  uint64_t address; /* The address of the reference; 0: it is in register `reg` of the frame itself. */
  uint64_t base;    /* WINDLASS_DERIVED: the base, as it was read. */
  uint32_t reg;
  uint32_t flags;
};
/* Calls `callback` for each root of the callback's frame, without the arguments of a transition frame.
 * WINDLASS_NOT_FOUND if the stack map has no site for this pc. [signal] */
WINDLASS_API windlass_status windlass_crawl_roots(const windlass_crawl* crawl, windlass_root_callback callback,
                                                  void* user, windlass_error* error);
/* Calls `callback` for each root of a thread: of all frames, of its exceptions, and of the arguments of its transition
 * frames. `registers` as for windlass_walk_managed. `flags` is 0 or WINDLASS_THREAD_IS_SUSPENDED. After an error, the
 * roots that were reported stand. [signal] */
WINDLASS_API windlass_status windlass_each_root(const windlass_managed_thread* thread,
                                                const windlass_registers* registers, uint32_t flags,
                                                windlass_root_callback callback, void* user, windlass_error* error);
/* Calls function(argument), with all registers that calls preserve on the stack. So a reference that generated code
 * keeps in a register has an address. For helpers that call a collector. */
/* NOLINTNEXTLINE(readability-redundant-declaration): managed/gc_roots.h has it, too */
WINDLASS_API void windlass_call_saving_registers(void (*function)(void*), void* argument);

/* LLVM's statepoint stack maps, from a section .llvm_stackmaps that does not change. */
typedef struct windlass_llvm_stack_maps windlass_llvm_stack_maps;
WINDLASS_API windlass_status windlass_open_llvm_stack_maps(const void* section, size_t section_size,
                                                           windlass_llvm_stack_maps** maps, windlass_error* error);
WINDLASS_API void windlass_free_llvm_stack_maps(windlass_llvm_stack_maps* maps);
WINDLASS_API windlass_status windlass_crawl_llvm_roots(const windlass_crawl* crawl,
                                                       const windlass_llvm_stack_maps* maps,
                                                       windlass_root_callback callback, void* user,
                                                       windlass_error* error);

/* ---- exceptions -------------------------------------------------------------------------------------------- */

/* Bits of windlass_thrown.flags. */
#define WINDLASS_RETHROWN 1u
#define WINDLASS_OF_FAULT 2u /* Made from a hardware fault. */
/* An exception during its dispatch. */
typedef struct windlass_thrown {
  uint64_t object; /* A root: read it again after managed code has run. */
  uint32_t flags;
  uint32_t reserved;
} windlass_thrown;

/* What to do with an exception that leaves managed code into the native code that called it: NativePolicy in
 * windlass/managed/exception.h. */
enum { WINDLASS_NATIVE_STOP = 0, WINDLASS_NATIVE_UNWIND = 1, WINDLASS_NATIVE_FAIL_FAST = 2 };
/* The runtime's decisions about exceptions. All callbacks but `catches` may be NULL. */
typedef struct windlass_personality {
  size_t size;
  /* True if a clause of WINDLASS_CLAUSE_CATCH catches the exception. */
  int (*catches)(const windlass_crawl* crawl, const windlass_crawl_frame* frame, const windlass_clause* clause,
                 const windlass_thrown* thrown, void* user);
  /* Called for each frame that the first pass reaches: for the trace that is kept with the object. */
  void (*trace)(const windlass_crawl* crawl, const windlass_crawl_frame* frame, const windlass_thrown* thrown,
                void* user);
  /* The address by which a frame's funclets find its locals. NULL: sp. */
  uint64_t (*base)(const windlass_crawl* crawl, const windlass_crawl_frame* frame, void* user);
  /* What to do where native code called managed code. NULL: WINDLASS_NATIVE_STOP. */
  uint32_t (*at_native)(const windlass_crawl_frame* frame, const windlass_thrown* thrown, void* user);
  /* Called for an unhandled exception. If both return, the process ends. */
  void (*notify_debugger)(const windlass_thrown* thrown, void* user);
  void (*unhandled)(const windlass_thrown* thrown, void* user);
  /* The object for a hardware fault; 0: the signal belongs to other code. [signal] */
  uint64_t (*object_of_fault)(int signal, uint64_t address, void* user);
  void* user;
  /* Called when an exception cannot go on. The process ends when this returns. `why` says the broken rule. NULL:
   * written to stderr. */
  void (*failed)(const windlass_error* why, const windlass_thrown* thrown, void* user);
  /* Called when managed code faults with almost no stack left. Nonzero: there is room below `sp` now, and the exception
   * is thrown. 0, or NULL: windlass_redirect_fault returns 0. [signal] */
  int (*make_room)(uint64_t sp, void* user);
} windlass_personality;

/* Throws `object`. Called on the mutator's own thread, in native code that managed code called. Does not return. If the
 * mutator has no personality, the process ends. WINDLASS_NATIVE_UNWIND passes C that was compiled with -fexceptions. */
WINDLASS_API WINDLASS_NORETURN void windlass_raise(windlass_mutator* mutator, uint64_t object);
/* Throws the caught exception once more. Called in a catch funclet, or in native code that it called. Does not
 * return. */
WINDLASS_API WINDLASS_NORETURN void windlass_rethrow(windlass_mutator* mutator);
/* Turns a hardware fault into an exception. Called in a handler with SA_SIGINFO. Nonzero if the exception is thrown
 * when the handler returns. [signal] */
WINDLASS_API int windlass_redirect_fault(windlass_mutator* mutator, int signal, const void* siginfo, void* ucontext);

/* ---- suspension -------------------------------------------------------------------------------------------- */

/* The runtime's knowledge of its code. */
typedef struct windlass_safe_points {
  size_t size;
  /* True if the roots of a method's frame are known at this instruction. [signal] */
  int (*is_safe_point)(const windlass_method* method, uint64_t pc, void* user);
  int (*can_hijack)(const windlass_method* method, void* user);        /* NULL: always. [signal] */
  int (*returns_reference)(const windlass_method* method, void* user); /* NULL: never. [signal] */
  void* user;
  /* Called by the stopping thread for a mutator that has not stopped within a second. `why` says which rule the
   * mutator's code breaks. NULL: written to stderr. */
  void (*is_late)(windlass_mutator* mutator, const windlass_error* why, void* user);
} windlass_safe_points;
typedef struct windlass_suspender windlass_suspender;

/* Opens the suspender, one in a process: WINDLASS_INVALID for a second one. The runtime uses `signal` for nothing else.
 * [any] */
WINDLASS_API windlass_status windlass_open_suspender(windlass_runtime* runtime, const windlass_safe_points* safe_points,
                                                     int signal, windlass_suspender** suspender, windlass_error* error);
/* Closes the suspender. No mutator may be attached. */
WINDLASS_API windlass_status windlass_close_suspender(windlass_suspender* suspender);
/* Attaches or detaches the calling thread's mutator. An attached mutator begins in native code. [any] */
WINDLASS_API windlass_status windlass_attach(windlass_suspender* suspender, windlass_mutator* mutator);
WINDLASS_API windlass_status windlass_detach(windlass_suspender* suspender, windlass_mutator* mutator);
/* Enters and leaves native code, around managed code. Leaving waits while threads are stopped. */
WINDLASS_API void windlass_enter_native(windlass_suspender* suspender, windlass_mutator* mutator);
WINDLASS_API void windlass_leave_native(windlass_suspender* suspender, windlass_mutator* mutator);
/* For generated code that does this itself. To enter, store 0 (native) to the mode. To leave, store 1, execute a full
 * barrier, and compare *pending with 0. If it is not 0, call windlass_leave_native. */
WINDLASS_API uint32_t* windlass_mutator_mode(windlass_mutator* mutator);
WINDLASS_API const uint32_t* windlass_pending(const windlass_suspender* suspender);
/* Stops all attached mutators but the calling thread's, until windlass_resume. One thread at a time stops the others,
 * and the same thread resumes. [any] */
WINDLASS_API windlass_status windlass_stop(windlass_suspender* suspender);
/* The same, but gives up after so many nanoseconds: WINDLASS_LIMIT, and no thread is stopped. `error` says which thread
 * did not stop, and why: `where` is its pc, `detail` its id. [any] */
WINDLASS_API windlass_status windlass_stop_within(windlass_suspender* suspender, uint64_t nanoseconds,
                                                  windlass_error* error);
WINDLASS_API windlass_status windlass_resume(windlass_suspender* suspender);
/* Calls `callback` for each attached mutator, while they are stopped. */
WINDLASS_API windlass_status windlass_each_mutator(const windlass_suspender* suspender,
                                                   void (*callback)(windlass_mutator* mutator, void* user), void* user);

#ifdef __cplusplus
}
#endif

#endif /* WINDLASS_C_MANAGED_H */
