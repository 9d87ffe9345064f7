/* Windlass for managed runtimes, the C interface: explicit frames, the walk over managed and native frames, GC roots,
 * two-pass exceptions, suspension. What each part means: docs/how-to/write-a-runtime-walker.md, and the C++ headers
 * windlass/explicit_frame.h, managed_walk.h, gc_roots.h, managed_exception.h and suspension.h, whose names these are.
 * x86-64 and AArch64, Linux.
 *
 *   windlass_runtime* runtime;                      // one for the program
 *   windlass_mutator* self;                         // one for each thread that runs managed code
 *   windlass_open_runtime(&callbacks, &runtime, NULL);
 *   windlass_open_mutator(runtime, NULL, &self, NULL);
 *
 *   void helper(void) {                             // native code, called by managed code
 *     windlass_context_frame frame = {{.kind = WINDLASS_FRAME_HELPER, .form = WINDLASS_FORM_LAZY}};
 *     windlass_capture_frame(&frame);
 *     windlass_push_frame(windlass_mutator_frames(self), &frame.header);
 *     windlass_walk_managed(&thread, NULL, 0, each_frame, NULL, NULL, NULL);     // thread.mutator = self
 *     windlass_pop_frame(windlass_mutator_frames(self), &frame.header);
 *   }
 *
 * The conventions of windlass.h hold. What is marked [signal] is so if the runtime's callbacks are. These do not throw,
 * nor jump out. */
#ifndef WINDLASS_MANAGED_H
#define WINDLASS_MANAGED_H

#include "windlass/windlass.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define WINDLASS_NORETURN __attribute__((noreturn))
#else
#define WINDLASS_NORETURN
#endif

/* ---- explicit frames --------------------------------------------------------------------------------------- */

/* Of fixed layout, for generated code too: the offsets below. These structs have no `size`. */
enum { /* windlass_explicit_frame.kind */
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
       WINDLASS_FRAME_USER = 0x100 /* and what lies behind */
};
enum {                              /* windlass_explicit_frame.form: what follows the header */
       WINDLASS_FORM_MARKER = 0,    /* nothing */
       WINDLASS_FORM_CALL_SITE = 1, /* pc, sp and frame pointer of a call that is under way; pc 0: none is */
       WINDLASS_FORM_SAVED = 2,   /* windlass_saved_context: what calls preserve; restored from there by who made it */
       WINDLASS_FORM_CONTEXT = 3, /* windlass_saved_context of an interrupted instruction */
       WINDLASS_FORM_LAZY = 4     /* windlass_saved_context of native code: the caller is found when asked for */
};
/* windlass_explicit_frame.attributes */
#define WINDLASS_FRAME_STANDS_FOR_FUNCTION 1u /* shown as a function: `user` */
#define WINDLASS_FRAME_HAS_FAULTED 2u         /* the managed code behind it will not go on */
#define WINDLASS_FRAME_ABORTED 4u             /* its references are no roots any more */
/* Bits of the words at windlass_explicit_frame.references, beside the 8-aligned address */
#define WINDLASS_REFERENCE_INTERIOR 1u /* it may point into an object */
#define WINDLASS_REFERENCE_PINNED 2u   /* what it points to may not move */
#define WINDLASS_END_OF_FRAMES UINT64_MAX

typedef struct windlass_explicit_frame {
  uint64_t next;   /* address of the next outer one */
  uint64_t cookie; /* the list's cookie ^ this frame's address */
  uint16_t kind;
  uint8_t form;
  uint8_t attributes;
  uint32_t reference_count;
  uint64_t references; /* address of so many words, WINDLASS_REFERENCE_...: addresses of object references, roots */
  uint64_t user;
} windlass_explicit_frame;
typedef struct windlass_call_site_frame {
  windlass_explicit_frame header;
  uint64_t pc;
  uint64_t sp;
  uint64_t fp;
} windlass_call_site_frame;
typedef struct windlass_saved_context {
  uint64_t known; /* bit n: value[n], as in windlass_registers */
  uint64_t return_address;
  uint64_t value[44];
} windlass_saved_context;
typedef struct windlass_context_frame {
  windlass_explicit_frame header;
  windlass_saved_context context;
} windlass_context_frame;
typedef struct windlass_frame_list {
  uint64_t top; /* address of the innermost frame */
  uint64_t cookie;
} windlass_frame_list;

/* For code generators. Linking a frame whose words are written: load top, store it to next, store the frame to top. */
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

/* An empty list, with this process's cookie. [any] */
WINDLASS_API windlass_status windlass_frame_list_init(windlass_frame_list* list);
/* The calling thread's list: sets next and cookie. [signal] */
WINDLASS_API void windlass_push_frame(windlass_frame_list* list, windlass_explicit_frame* frame);
WINDLASS_API void windlass_pop_frame(windlass_frame_list* list, const windlass_explicit_frame* frame);
/* The caller's registers, as they are when this returns, into a frame of the form saved or lazy. [signal] */
WINDLASS_API void windlass_capture_frame(windlass_context_frame* frame);

/* ---- the runtime ------------------------------------------------------------------------------------------- */

enum { WINDLASS_NO_FUNCLET = 0, WINDLASS_FILTER = 1, WINDLASS_CATCH = 2, WINDLASS_FINALLY = 3, WINDLASS_FAULT = 4 };

/* Where a frame keeps a value. */
enum {
  WINDLASS_NOWHERE = 0,
  WINDLASS_IN_REGISTER = 1,
  WINDLASS_AT_CFA = 2,
  WINDLASS_AT_SP = 3,
  WINDLASS_AT_REGISTER = 4
};
typedef struct windlass_place {
  uint16_t base; /* WINDLASS_NOWHERE, ... */
  uint16_t reg;  /* DWARF number */
  int32_t offset;
} windlass_place;

/* What a method's exception table has: inner clauses before those around them. */
enum { WINDLASS_CLAUSE_CATCH = 0, WINDLASS_CLAUSE_FILTER = 1, WINDLASS_CLAUSE_FINALLY = 2, WINDLASS_CLAUSE_FAULT = 3 };
typedef struct windlass_clause {
  uint32_t kind;
  uint32_t begin; /* what it protects: offsets in the method's code */
  uint32_t end;
  uint32_t reserved;
  uint64_t handler; /* address of the funclet, called as uint64_t f(uint64_t base, uint64_t object) */
  uint64_t filter;  /* of WINDLASS_CLAUSE_FILTER: the one that is asked; 1: every exception */
  uint64_t user;    /* the runtime's: the type that is caught */
  uint64_t resume;  /* without a handler: where the method itself handles it, the object in rax or x0 */
} windlass_clause;

/* A function of managed code, or a funclet. These handles are not checked: walks take them as find() gives them. */
typedef struct windlass_method windlass_method;
#define WINDLASS_TRANSPARENT 1u /* a helper, which windlass_find_managed_caller looks past */
typedef struct windlass_method_description {
  size_t size;
  uint64_t begin; /* of the code */
  uint64_t end;
  uint64_t id;                   /* the runtime's */
  const windlass_method* parent; /* of a funclet; NULL: none. Made before it and freed after it */
  uint32_t funclet;              /* WINDLASS_NO_FUNCLET, ... */
  uint32_t flags;                /* WINDLASS_TRANSPARENT */
  /* Windows unwind information, which is used if windows_info is not 0: RVAs from an address. Of ARM64 windows_info is
   * the second word of the function's one entry, and windows_end 0. Without it frames are unwound by rows:
   * windlass_add_own_code, a code manager, or the program's own call frame information. */
  uint64_t windows_base;
  uint32_t windows_begin;
  uint32_t windows_end;
  uint32_t windows_info;
  uint32_t clause_count;
  const windlass_clause* clauses; /* copied */
  const void* roots;              /* windlass_encode_stack_map's bytes, copied; NULL: no stack map */
  size_t roots_size;
  windlass_place this_object;
  windlass_place generic_context; /* what says the exact types of shared generic code */
  windlass_place guard;           /* holds windlass_runtime_callbacks.guard_value, to notice overwritten frames by */
} windlass_method_description;

/* WINDLASS_MALFORMED for an empty range, a kind that there is not, or a stack map that is none. [any] */
WINDLASS_API windlass_status windlass_make_method(const windlass_method_description* description,
                                                  windlass_method** method, windlass_error* error);
/* Not while a walk may still see it. NULL is allowed. */
WINDLASS_API void windlass_free_method(windlass_method* method);
WINDLASS_API uint64_t windlass_method_id(const windlass_method* method);

/* What a walk is at: while the callback has it. */
typedef struct windlass_crawl windlass_crawl;
typedef struct windlass_crawl_frame windlass_crawl_frame;
typedef struct windlass_root windlass_root;
typedef void (*windlass_root_callback)(const windlass_root* root, void* user);

typedef struct windlass_runtime_callbacks {
  size_t size;
  /* The method whose code contains an address, or NULL. Asked on whichever thread walks, in signal handlers, too. */
  const windlass_method* (*find)(uint64_t pc, void* user);
  /* May be NULL. Is there an object? Asked of `this` unless WINDLASS_ALLOW_INVALID_OBJECTS is given. */
  int (*is_object)(uint64_t reference, void* user);
  /* May be NULL: walkers keep no rows. A number that changes whenever rows do: windlass_new_generation(). */
  uint64_t (*generation)(void* user);
  void* user;
  uint64_t guard_value;
  /* May be NULL. Of a transition frame: calls `sink` for each reference among the arguments of the function that is
   * called. For windlass_each_root, which fails (WINDLASS_UNSUPPORTED) where this returns no WINDLASS_OK. */
  windlass_status (*each_argument)(const windlass_crawl* crawl, const windlass_crawl_frame* frame,
                                   windlass_root_callback sink, void* to, void* user);
} windlass_runtime_callbacks;
typedef struct windlass_runtime windlass_runtime;

WINDLASS_API windlass_status windlass_open_runtime(const windlass_runtime_callbacks* callbacks,
                                                   windlass_runtime** runtime, windlass_error* error);
/* After its mutators and its suspender. */
WINDLASS_API windlass_status windlass_close_runtime(windlass_runtime* runtime);
/* Never 0, and never given twice. [signal] */
WINDLASS_API uint64_t windlass_new_generation(void);

/* A thread of this process that runs managed code: its explicit frames, its exceptions, its mode. */
typedef struct windlass_mutator windlass_mutator;
struct windlass_personality;

/* `personality` (copied; may be NULL: it does not throw). [any] */
WINDLASS_API windlass_status windlass_open_mutator(windlass_runtime* runtime,
                                                   const struct windlass_personality* personality,
                                                   windlass_mutator** mutator, windlass_error* error);
/* Detached, with no frames and no exception under way. */
WINDLASS_API windlass_status windlass_close_mutator(windlass_mutator* mutator);
/* Its list: as long as it is open. NULL: it is not. [signal] */
WINDLASS_API windlass_frame_list* windlass_mutator_frames(windlass_mutator* mutator);

/* ---- the walk ---------------------------------------------------------------------------------------------- */

/* A thread, as walks need it: of this process a mutator, and nothing else; of another one, or a dump, the rest. */
typedef struct windlass_managed_thread {
  size_t size;
  const windlass_mutator* mutator;
  const windlass_space* space;
  const windlass_runtime* runtime;
  uint64_t frames; /* windlass_frame_list.top, and its cookie */
  uint64_t cookie;
  uint64_t exceptions; /* WINDLASS_END_OF_FRAMES: none */
} windlass_managed_thread;

/* Flags, with CoreCLR's meaning: windlass/managed_walk.h says it. */
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

enum { /* windlass_crawl_frame.state */
       WINDLASS_FRAMELESS = 1,
       WINDLASS_FRAME_FUNCTION = 2,
       WINDLASS_SKIPPED_FRAME = 3,
       WINDLASS_NO_FRAME_TRANSITION = 4,
       WINDLASS_NATIVE_MARKER = 5,
       WINDLASS_INITIAL_NATIVE_CONTEXT = 6,
       WINDLASS_NATIVE_FRAME = 7
};
/* windlass_crawl_frame.flags, besides WINDLASS_RETURN_ADDRESS */
#define WINDLASS_IS_FIRST 2u       /* of the frames with code */
#define WINDLASS_IS_INTERRUPTED 4u /* stands at an instruction: nothing was called */
#define WINDLASS_HAS_FAULTED 8u    /* and will not go on there */
#define WINDLASS_REPORTS_ROOTS 16u /* WINDLASS_GC_FUNCLET_REFERENCES */
#define WINDLASS_SAVED_KNOWN 32u   /* neither quick nor light unwind */

struct windlass_crawl_frame {
  size_t size;
  uint32_t state;
  uint32_t flags;
  uint64_t pc; /* 0 where no register is known */
  uint64_t sp;
  uint64_t cfa;                  /* frameless: sp of its caller behind the call */
  uint64_t function;             /* the runtime's id of the function it stands for; 0: none */
  const windlass_method* method; /* frameless */
  uint64_t exception;            /* no-frame transition: address of the record */
  uint64_t frame;                /* explicit frame: its address, and what it says */
  uint64_t frame_user;
  uint16_t frame_kind;
  uint8_t frame_form;
  uint8_t frame_attributes;
  uint32_t reserved;
};

enum { WINDLASS_CONTINUE = 0, WINDLASS_STOP = 1, WINDLASS_ABORT = 2 };
typedef int (*windlass_crawl_callback)(const windlass_crawl* crawl, const windlass_crawl_frame* frame, void* user);

enum {
  WINDLASS_WALK_DONE = 0,
  WINDLASS_WALK_STOPPED = 1, /* the callback said so; WINDLASS_POP_FRAMES: frames are off the list as far as it came */
  WINDLASS_WALK_ABORTED = 2, /* likewise; the list is as it was before the walk */
  WINDLASS_WALK_FAILED = 3   /* `error` */
};
/* Calls `callback` for each frame, innermost first. `registers` are where the thread is; NULL: it is in native code,
 * and walked from its explicit frames. A walk that fails is still WINDLASS_OK: `outcome` (may be NULL) and `error` say
 * so. [signal] */
WINDLASS_API windlass_status windlass_walk_managed(const windlass_managed_thread* thread,
                                                   const windlass_registers* registers, uint32_t flags,
                                                   windlass_crawl_callback callback, void* user, uint32_t* outcome,
                                                   windlass_error* error);
/* Of the frame that a callback has. `address` as windlass_saved_at's. [signal] */
WINDLASS_API windlass_status windlass_crawl_registers(const windlass_crawl* crawl, windlass_registers* registers);
WINDLASS_API windlass_status windlass_crawl_get(const windlass_crawl* crawl, uint32_t number, uint64_t* value);
WINDLASS_API windlass_status windlass_crawl_saved_at(const windlass_crawl* crawl, uint32_t number, uint64_t* address);
/* What is at a place of a frameless frame. WINDLASS_NOT_FOUND: it has none, or the register is not known;
 * WINDLASS_UNREADABLE. [signal] */
WINDLASS_API windlass_status windlass_crawl_value(const windlass_crawl* crawl, windlass_place place, uint64_t* value);
WINDLASS_API windlass_status windlass_crawl_this(const windlass_crawl* crawl, uint64_t* value);
WINDLASS_API windlass_status windlass_crawl_generic_context(const windlass_crawl* crawl, uint64_t* value);

/* Stack crawl marks: which method above the native code that asks, past transparent ones. WINDLASS_NOT_FOUND: there is
 * none. [signal] */
enum { WINDLASS_MYSELF = 0, WINDLASS_MY_CALLER = 1, WINDLASS_MY_CALLERS_CALLER = 2 };
WINDLASS_API windlass_status windlass_find_managed_caller(const windlass_managed_thread* thread,
                                                          const windlass_registers* registers, uint32_t mark,
                                                          windlass_crawl_frame* frame, windlass_error* error);

/* ---- GC roots ---------------------------------------------------------------------------------------------- */

#define WINDLASS_INTERIOR 1u /* may point into an object */
#define WINDLASS_PINNED 2u   /* what it points to may not move */
#define WINDLASS_DERIVED \
  4u /* windlass_root: points into the object at `base`. Comes before the root that is its base */

typedef struct windlass_root_slot {
  windlass_place place; /* offsets are multiples of 8 */
  uint32_t flags;       /* WINDLASS_INTERIOR, WINDLASS_PINNED */
} windlass_root_slot;
typedef struct windlass_derived_slot {
  windlass_root_slot slot;
  windlass_root_slot base;
} windlass_derived_slot;
typedef struct windlass_root_site {
  uint32_t offset; /* into the code: behind a call, or of the instruction of a safe point */
  uint32_t live_count;
  const windlass_root_slot* live;
} windlass_root_site;
typedef struct windlass_stack_map {
  size_t size;
  uint32_t code_size;
  uint32_t always_count;
  const windlass_root_slot* always; /* live throughout, and all that is once the frame has faulted */
  const windlass_derived_slot* derived;
  size_t derived_count;
  const windlass_root_site* sites; /* ascending */
  size_t site_count;
} windlass_stack_map;
/* The bytes for windlass_method_description.roots: at most `capacity` of them to `bytes` (may be NULL with 0); `needed`
 * becomes how many there are. WINDLASS_LIMIT where they do not fit, with nothing written. Errors as encode()'s in
 * windlass/gc_roots.h. [any] */
WINDLASS_API windlass_status windlass_encode_stack_map(const windlass_stack_map* map, void* bytes, size_t capacity,
                                                       size_t* needed, windlass_error* error);

struct windlass_root {
  uint64_t value;   /* the reference */
  uint64_t address; /* where it is; 0: in `reg` of the frame itself */
  uint64_t base;    /* WINDLASS_DERIVED: what it is derived from, as it was read */
  uint32_t reg;
  uint32_t flags;
};
/* Those of the frame that a callback has, without the arguments of a transition frame. WINDLASS_NOT_FOUND where its map
 * has nothing for this place. [signal] */
WINDLASS_API windlass_status windlass_crawl_roots(const windlass_crawl* crawl, windlass_root_callback callback,
                                                  void* user, windlass_error* error);
/* Those of a whole thread: of all its frames, with its exceptions and the arguments of its transition frames.
 * `registers` as windlass_walk_managed's; `flags`: 0 or WINDLASS_THREAD_IS_SUSPENDED. What was shown before an error
 * stands. [signal] */
WINDLASS_API windlass_status windlass_each_root(const windlass_managed_thread* thread,
                                                const windlass_registers* registers, uint32_t flags,
                                                windlass_root_callback callback, void* user, windlass_error* error);
/* function(argument), with all registers that calls preserve on the stack: whatever generated code keeps in one has an
 * address then. For helpers from which a collector is called. */
/* NOLINTNEXTLINE(readability-redundant-declaration): gc_roots.h has it, too */
WINDLASS_API void windlass_call_saving_registers(void (*function)(void*), void* argument);

/* LLVM's statepoint stack maps, of a .llvm_stackmaps section that stays as it is. */
typedef struct windlass_llvm_stack_maps windlass_llvm_stack_maps;
WINDLASS_API windlass_status windlass_open_llvm_stack_maps(const void* section, size_t section_size,
                                                           windlass_llvm_stack_maps** maps, windlass_error* error);
WINDLASS_API void windlass_free_llvm_stack_maps(windlass_llvm_stack_maps* maps);
WINDLASS_API windlass_status windlass_crawl_llvm_roots(const windlass_crawl* crawl,
                                                       const windlass_llvm_stack_maps* maps,
                                                       windlass_root_callback callback, void* user,
                                                       windlass_error* error);

/* ---- exceptions -------------------------------------------------------------------------------------------- */

#define WINDLASS_RETHROWN 1u
#define WINDLASS_OF_FAULT 2u /* made of a hardware fault */
typedef struct windlass_thrown {
  uint64_t object; /* a root: read it again after managed code ran */
  uint32_t flags;
  uint32_t reserved;
} windlass_thrown;

enum { WINDLASS_NATIVE_STOP = 0, WINDLASS_NATIVE_UNWIND = 1, WINDLASS_NATIVE_FAIL_FAST = 2 };
typedef struct windlass_personality {
  size_t size;
  /* Does a clause of WINDLASS_CLAUSE_CATCH catch it? */
  int (*catches)(const windlass_crawl* crawl, const windlass_crawl_frame* frame, const windlass_clause* clause,
                 const windlass_thrown* thrown, void* user);
  /* The others may be NULL. A frame that the first pass has come to: for the trace that is kept with the object. */
  void (*trace)(const windlass_crawl* crawl, const windlass_crawl_frame* frame, const windlass_thrown* thrown,
                void* user);
  /* What funclets of a frame find its locals by. NULL: sp. */
  uint64_t (*base)(const windlass_crawl* crawl, const windlass_crawl_frame* frame, void* user);
  /* What becomes of it where native code called the managed code that it leaves. NULL: WINDLASS_NATIVE_STOP. */
  uint32_t (*at_native)(const windlass_crawl_frame* frame, const windlass_thrown* thrown, void* user);
  /* Nobody handles it. The process ends if they return. */
  void (*notify_debugger)(const windlass_thrown* thrown, void* user);
  void (*unhandled)(const windlass_thrown* thrown, void* user);
  /* What a hardware fault becomes; 0: the signal is somebody else's. [signal] */
  uint64_t (*object_of_fault)(int signal, uint64_t address, void* user);
  void* user;
  /* The exception cannot go on, and the process ends when this returns: `why` names the rule. NULL: it is written to
   * stderr. */
  void (*failed)(const windlass_error* why, const windlass_thrown* thrown, void* user);
  /* Managed code has faulted with its stack all but exhausted. Nonzero: there is room below `sp` now, in which the
   * exception is thrown. 0, or NULL: windlass_redirect_fault returns 0. [signal] */
  int (*make_room)(uint64_t sp, void* user);
} windlass_personality;

/* By the mutator's own thread, in native code that managed code called. They do not return; a mutator without a
 * personality ends the process. WINDLASS_NATIVE_UNWIND goes through C that was compiled with -fexceptions. */
WINDLASS_API WINDLASS_NORETURN void windlass_raise(windlass_mutator* mutator, uint64_t object);
/* In a catch funclet, or what it called: what it has caught. */
WINDLASS_API WINDLASS_NORETURN void windlass_rethrow(windlass_mutator* mutator);
/* In a handler with SA_SIGINFO: nonzero if the exception is thrown when the handler returns. [signal] */
WINDLASS_API int windlass_redirect_fault(windlass_mutator* mutator, int signal, const void* siginfo, void* ucontext);

/* ---- suspension -------------------------------------------------------------------------------------------- */

typedef struct windlass_safe_points {
  size_t size;
  /* Are the roots of a method's frame known at this instruction? [signal] */
  int (*is_safe_point)(const windlass_method* method, uint64_t pc, void* user);
  int (*can_hijack)(const windlass_method* method, void* user);        /* NULL: always. [signal] */
  int (*returns_reference)(const windlass_method* method, void* user); /* NULL: never. [signal] */
  void* user;
  /* A mutator has not stopped within a second: `why` names the rule that its code breaks. By who stops. NULL: it is
   * written to stderr. */
  void (*is_late)(windlass_mutator* mutator, const windlass_error* why, void* user);
} windlass_safe_points;
typedef struct windlass_suspender windlass_suspender;

/* One in a process: WINDLASS_INVALID for a second one. `signal` is its alone. [any] */
WINDLASS_API windlass_status windlass_open_suspender(windlass_runtime* runtime, const windlass_safe_points* safe_points,
                                                     int signal, windlass_suspender** suspender, windlass_error* error);
/* When no mutator is attached. */
WINDLASS_API windlass_status windlass_close_suspender(windlass_suspender* suspender);
/* The calling thread's mutator, which is in native code from then on, and until it is detached. [any] */
WINDLASS_API windlass_status windlass_attach(windlass_suspender* suspender, windlass_mutator* mutator);
WINDLASS_API windlass_status windlass_detach(windlass_suspender* suspender, windlass_mutator* mutator);
/* Around managed code: leaving native code waits while threads are stopped. */
WINDLASS_API void windlass_enter_native(windlass_suspender* suspender, windlass_mutator* mutator);
WINDLASS_API void windlass_leave_native(windlass_suspender* suspender, windlass_mutator* mutator);
/* For generated code that does so itself: store 0 (native) to the mode; on the way back store 1, and behind a full
 * barrier compare *pending with 0: windlass_leave_native where it is not. */
WINDLASS_API uint32_t* windlass_mutator_mode(windlass_mutator* mutator);
WINDLASS_API const uint32_t* windlass_pending(const windlass_suspender* suspender);
/* All attached mutators but the calling thread's stand still from the one to the other. One thread stops at a time;
 * the same one resumes. [any] */
WINDLASS_API windlass_status windlass_stop(windlass_suspender* suspender);
/* The same, for so many nanoseconds: WINDLASS_LIMIT, and nothing is stopped, where a thread has not come to a safe
 * point by then. `error` says which and why: `where` its pc, `detail` its id. [any] */
WINDLASS_API windlass_status windlass_stop_within(windlass_suspender* suspender, uint64_t nanoseconds,
                                                  windlass_error* error);
WINDLASS_API windlass_status windlass_resume(windlass_suspender* suspender);
/* All attached, while they are stopped. */
WINDLASS_API windlass_status windlass_each_mutator(const windlass_suspender* suspender,
                                                   void (*callback)(windlass_mutator* mutator, void* user), void* user);

#ifdef __cplusplus
}
#endif

#endif /* WINDLASS_MANAGED_H */
