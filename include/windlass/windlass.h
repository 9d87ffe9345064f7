/* Windlass, the C interface: stacks of this process, another one, a core file, a minidump, or of memory that callbacks
 * read. C99 and C++; needs nothing but the standard headers below.
 *
 *   windlass_space* space = NULL;
 *   windlass_registers registers;
 *   registers.size = sizeof registers;
 *   windlass_open_self(&space, NULL);
 *   windlass_capture_registers(&registers);
 *   windlass_walk(space, &registers, NULL, each_frame, NULL, NULL, NULL);
 *   windlass_close(space);
 *
 * Conventions
 *
 *   Structs begin with `size`, which the caller sets to the sizeof it was compiled with. The library reads and writes
 *   no byte beyond it, and new members only ever come at the end. A size this library never had, or a member it does
 *   not know and that is not zero, is WINDLASS_INVALID.
 *
 *   Functions return WINDLASS_OK or another windlass_status. `error`, the last argument where there is one, may be
 *   NULL. A null pointer where one is needed, a wrong size or a closed handle is WINDLASS_INVALID, never a crash. A
 *   handle that was closed stays invalid until its memory is used for another one that is opened later.
 *
 *   Registers are named by DWARF number (System V x86-64 psABI figure 3.36; AADWARF64 table 1): x86-64 0-15 general,
 *   16 the pc; AArch64 0-30, 31 sp, 32 the pc, 34 ra_sign_state, 72-79 d8-d15.
 *
 * Threads and signals, said at each function as
 *   [any]     any thread, at any time
 *   [signal]  that, and in a signal handler: no lock, no allocation, no system call that is not async-signal-safe
 *   [setup]   not while another thread uses the same space; not in a signal handler
 * A cursor belongs to one thread at a time; any number of cursors may use one space.
 *
 * Headers of their own, by the same conventions: windlass_unwind_info.h reads unwind information, windlass_managed.h is
 * for managed runtimes, windlass_symbols.h names addresses. */
#ifndef WINDLASS_H
#define WINDLASS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) && !defined(_WIN32)
#define WINDLASS_API __attribute__((visibility("default")))
#else
#define WINDLASS_API
#endif

/* ---- versions -------------------------------------------------------------------------------------------- */

#define WINDLASS_VERSION_MAJOR 0
#define WINDLASS_VERSION_MINOR 1
#define WINDLASS_VERSION_PATCH 0
/* Of the library that is loaded: major << 16 | minor << 8 | patch, and as text "0.1.0". [signal] */
WINDLASS_API uint32_t windlass_version(void);
WINDLASS_API const char* windlass_version_text(void);

/* ---- errors ---------------------------------------------------------------------------------------------- */

typedef int windlass_status;
enum {
  WINDLASS_OK = 0,
  WINDLASS_END = 1,          /* windlass_step: the walk has ended; windlass_end_reason says why */
  WINDLASS_INVALID = 2,      /* the call itself is wrong: see the conventions above */
  WINDLASS_NO_MEMORY = 3,    /* for a handle */
  WINDLASS_TRUNCATED = 4,    /* the bytes end before the record does */
  WINDLASS_MALFORMED = 5,    /* the bytes contradict their specification */
  WINDLASS_UNSUPPORTED = 6,  /* well-formed, but of a kind this build does not interpret */
  WINDLASS_OUT_OF_RANGE = 7, /* a size, index or address outside what contains it */
  WINDLASS_NOT_FOUND = 8,    /* no such module, register, thread or file */
  WINDLASS_LIMIT = 9,        /* a stated bound was reached */
  WINDLASS_UNREADABLE = 10,  /* target memory could not be read */
  WINDLASS_SYSTEM = 11       /* the operating system refused; `detail` is errno */
};

typedef struct windlass_error {
  size_t size;
  windlass_status status;
  uint32_t reserved;
  uint64_t where;  /* a file offset or an address; the text says which */
  uint64_t detail; /* a number that belongs to it, or 0 */
  char text[256];  /* a sentence, NUL-terminated, cut where it is longer */
} windlass_error;

/* "WINDLASS_INVALID" and so on; "?" for another number. Static. [signal] */
WINDLASS_API const char* windlass_status_name(windlass_status status);

/* ---- registers ------------------------------------------------------------------------------------------- */

enum { WINDLASS_X86_64 = 0, WINDLASS_AARCH64 = 1, WINDLASS_I386 = 2 };
/* What this library was built for. [signal] */
WINDLASS_API uint32_t windlass_native_architecture(void);

/* In windlass_registers.flags and windlass_frame.flags. */
#define WINDLASS_RETURN_ADDRESS 1u /* pc is a return address: the call before it is what is running */
#define WINDLASS_SIGNAL_FRAME 2u   /* windlass_frame only: this frame was interrupted by a signal */

/* The registers of one frame. Use the functions below; the order of `value` is the library's. */
typedef struct windlass_registers {
  size_t size;
  uint32_t architecture; /* WINDLASS_X86_64, ... */
  uint32_t flags;        /* WINDLASS_RETURN_ADDRESS */
  uint64_t known;
  uint64_t value[44];
} windlass_registers;

/* Empties `registers` for one architecture. `registers->size` must be set. [signal] */
WINDLASS_API windlass_status windlass_registers_init(windlass_registers* registers, uint32_t architecture);
/* WINDLASS_NOT_FOUND: not known in this frame. WINDLASS_OUT_OF_RANGE: no register that is kept. [signal] */
WINDLASS_API windlass_status windlass_get(const windlass_registers* registers, uint32_t number, uint64_t* value);
/* Setting the pc makes it an instruction's address; set flags for a return address. [signal] */
WINDLASS_API windlass_status windlass_set(windlass_registers* registers, uint32_t number, uint64_t value);
/* The registers calls preserve: writes at most `capacity` numbers, ascending; returns how many there are. [signal] */
WINDLASS_API uint32_t windlass_preserved(uint32_t architecture, uint16_t* numbers, uint32_t capacity);

/* The caller's own registers, as they are when this call returns: the walk begins in the function that calls it.
 * [signal] */
WINDLASS_API windlass_status windlass_capture_registers(windlass_registers* registers);
/* From the third argument of an SA_SIGINFO handler (a ucontext_t of this process). [signal] */
WINDLASS_API windlass_status windlass_from_ucontext(const void* ucontext, windlass_registers* registers);

/* ---- address spaces -------------------------------------------------------------------------------------- */

/* Memory, modules and code ranges of one process. */
typedef struct windlass_space windlass_space;

/* Memory that is not this process's own. */
typedef struct windlass_memory {
  size_t size;
  /* Copies [address, address + length) to `to`; nonzero if all of it was readable. Called during every step, from
   * whichever thread steps; must be signal-safe where stepping shall be. */
  int (*read)(void* user, uint64_t address, void* to, size_t length);
  /* Called once when the space is closed. May be NULL. */
  void (*release)(void* user);
  void* user;
} windlass_memory;

/* This process: its modules are found by itself, code it makes at run time is added with
 * windlass_add_own_code. [any] */
WINDLASS_API windlass_status windlass_open_self(windlass_space** space, windlass_error* error);
/* Another process. Its threads are stopped (ptrace) until the space is closed, on whichever thread that is.
 * WINDLASS_SYSTEM where that is not allowed or there is none; `where` is the process that traces it already. [any] */
WINDLASS_API windlass_status windlass_open_process(int64_t pid, windlass_space** space, windlass_error* error);

/* Lets its threads go on; nothing may be read of the space then, until windlass_refresh. *stopped_ns (may be NULL): for
 * how long they were stopped, from the first one's interruption to the last one's going on; 0 for all but processes,
 * and where nobody is stopped. [setup] */
WINDLASS_API windlass_status windlass_release(windlass_space* space, uint64_t* stopped_ns);

typedef struct windlass_refreshed {
  size_t size;
  uint64_t modules_gone; /* modules and ranges of code without a file */
  uint64_t modules_new;
  uint32_t executed; /* 1: the process has become another program (execve) */
  uint32_t reserved;
} windlass_refreshed;

/* Stops the process again, to be walked as it is now: its threads, problems, notes and modules become those of now. One
 * that still stands goes on first. What is kept of unchanged modules makes this a hundredth of opening it anew. All
 * cursors of the space are invalid after it. `changed` may be NULL. Errors as windlass_open_process; WINDLASS_SYSTEM
 * with ESRCH as `detail` once it has ended; WINDLASS_UNSUPPORTED for all but processes. After an error nothing is
 * stopped, and there are no threads. [setup] */
WINDLASS_API windlass_status windlass_refresh(windlass_space* space, windlass_refreshed* changed,
                                              windlass_error* error);

/* Where the files of a dead process are, if not where it knew them. NULL for what is not needed. */
typedef struct windlass_files {
  size_t size;
  const char* sysroot;    /* put before every path, and searched before the path itself */
  const char* executable; /* the program's own file */
} windlass_files;

/* An ELF core file. `files` may be NULL. What is damaged in it: windlass_problem_at. [any] */
WINDLASS_API windlass_status windlass_open_core(const char* path, const windlass_files* files, windlass_space** space,
                                                windlass_error* error);
/* A minidump, Microsoft's, Breakpad's or Crashpad's. [any] */
WINDLASS_API windlass_status windlass_open_minidump(const char* path, const windlass_files* files,
                                                    windlass_space** space, windlass_error* error);
/* What could not be read of a process or dump (WINDLASS_OK: `problem` is filled), and what people should know of it:
 * files that are missing or not the ones that ran. WINDLASS_NOT_FOUND for an index past the last. [any] */
WINDLASS_API windlass_status windlass_problem_at(const windlass_space* space, size_t index, windlass_error* problem);
WINDLASS_API windlass_status windlass_note_at(const windlass_space* space, size_t index, const char** text);

/* No modules and no threads at first. `memory` is copied; on failure it is not released. [any] */
WINDLASS_API windlass_status windlass_open_callbacks(uint32_t architecture, const windlass_memory* memory,
                                                     windlass_space** space, windlass_error* error);
/* The handle and its cursors are invalid after it; a process that was opened runs on. [setup] */
WINDLASS_API windlass_status windlass_close(windlass_space* space);
WINDLASS_API windlass_status windlass_space_architecture(const windlass_space* space, uint32_t* architecture);

/* ---- modules and code ranges ----------------------------------------------------------------------------- */

/* One file as it is mapped, or one range of code without a file. */
typedef struct windlass_module {
  size_t size;
  uint64_t begin;    /* first address */
  uint64_t end;      /* one past the last */
  uint64_t bias;     /* address in the process - bias = address as the file numbers it */
  const char* path;  /* as the process knows it. Given back: valid until the module is removed */
  const char* file;  /* where to read it here, if that is another path, else NULL */
  const void* image; /* windlass_add_module: the file's bytes, if they shall not be read from the disk; copied */
  size_t image_size;
} windlass_module;

/* A file that cannot be read is no error: its code is then unwound by its instructions. WINDLASS_MALFORMED for an empty
 * range or one that overlaps another. [setup] */
WINDLASS_API windlass_status windlass_add_module(windlass_space* space, const windlass_module* module,
                                                 windlass_error* error);

/* How to leave the code in [begin, end): CFA = cfa_register + cfa_offset, which is the caller's stack pointer. A
 * preserved register that is not named keeps its value. */
typedef struct windlass_saved_register {
  uint32_t number;
  int32_t offset; /* it is at CFA + offset */
} windlass_saved_register;
typedef struct windlass_row {
  uint64_t begin; /* addresses of the process */
  uint64_t end;
  uint32_t cfa_register;
  int32_t cfa_offset;
  int32_t return_offset; /* the return address is at CFA + this; 0 (AArch64): in the link register */
  uint32_t saved_count;
  const windlass_saved_register* saved;
} windlass_row;

/* Code that was generated at run time, and one form of unwind information, or none: then its instructions are followed.
 * Everything is copied. */
typedef struct windlass_code {
  size_t size;
  uint64_t begin;
  uint64_t end;
  const char* name;         /* may be NULL */
  const windlass_row* rows; /* ascending, disjoint, in the range */
  size_t row_count;
  const void* eh_frame; /* a section .eh_frame, whose FDEs lie in the range */
  size_t eh_frame_size;
  uint64_t eh_frame_address; /* what its pointers count from; where it is, if it is in the process */
} windlass_code;

/* For walks in one space: seen by all that begin after it. `id` (may be NULL) becomes a number that is never given
 * twice. WINDLASS_MALFORMED for a range that is empty or overlaps another (`where`: where that begins), and for rows
 * that are not sorted or not in it; what is wrong with .eh_frame, with the offset in it. Locks and allocates, while
 * others may walk. [any] */
WINDLASS_API windlass_status windlass_add_code(windlass_space* space, const windlass_code* code, uint64_t* id,
                                               windlass_error* error);
/* No walk that begins after it sees the range: to be called before other code is written there. Its memory is freed
 * when the walks that were under way have ended. WINDLASS_NOT_FOUND. [any] */
WINDLASS_API windlass_status windlass_retire_code(windlass_space* space, uint64_t id, windlass_error* error);

/* The same for all walks of this process: in every space of windlass_open_self, and by libwindlass-unwind.so's names. A
 * process may hold several copies of this library; those whose symbols come after this one's are told, too. [any] */
WINDLASS_API windlass_status windlass_add_own_code(const windlass_code* code, uint64_t* id, windlass_error* error);
WINDLASS_API windlass_status windlass_retire_own_code(uint64_t id, windlass_error* error);

/* ---- generated code made known to others ------------------------------------------------------------------
 *
 * Described once, registered with libgcc's or LLVM's unwinder, debuggers, profilers and the own walks:
 * docs/how-to/describe-your-jit.md. Not on Windows. */

/* What one instruction of a prologue does. */
enum {
  WINDLASS_ALLOCATE = 0,           /* sp -= bytes */
  WINDLASS_SAVE = 1,               /* sp -= bytes; [sp + offset] = reg, and [sp + offset + 8] = second */
  WINDLASS_SET_FRAME_POINTER = 2,  /* reg = sp + offset */
  WINDLASS_SIGN_RETURN_ADDRESS = 3 /* AArch64: paciasp */
};
#define WINDLASS_NO_REGISTER 0xffffu

typedef struct windlass_op {
  uint32_t end;    /* of the instruction, from the function's first byte */
  uint32_t action; /* WINDLASS_ALLOCATE, ... */
  uint16_t reg;    /* DWARF numbers */
  uint16_t second; /* WINDLASS_SAVE: WINDLASS_NO_REGISTER for none */
  uint32_t offset;
  uint64_t bytes; /* x86-64's push: 8, with offset 0 */
} windlass_op;

/* Takes back what the prologue did: which actions, by which instructions, in the order of the code. Without any, all in
 * reverse by the instructions that compilers use (add or lea, pop, ret; on AArch64 one each), and `end` is not looked
 * at. */
typedef struct windlass_epilogue {
  uint32_t begin;
  uint32_t end; /* behind the return or jump */
  const windlass_op* undone;
  size_t undone_count;
} windlass_epilogue;

typedef struct windlass_generated {
  size_t size;
  uint64_t address;   /* of its first byte */
  uint32_t code_size; /* bytes */
  uint32_t reserved;
  const char* name; /* may be NULL */
  const windlass_op* ops;
  size_t op_count;
  const windlass_epilogue* epilogues;
  size_t epilogue_count;
  uint64_t personality; /* of exceptions; 0: none */
  uint64_t language_data;
} windlass_generated;

/* Which tool is told. */
enum {
  WINDLASS_REGISTRY_OWN = 0,        /* walks of this process by this copy of the library */
  WINDLASS_REGISTRY_FRAME_INFO = 1, /* __register_frame() */
  WINDLASS_REGISTRY_GDB = 2,        /* GDB's JIT interface */
  WINDLASS_REGISTRY_PERF_MAP = 3,   /* /tmp/perf-PID.map */
  WINDLASS_REGISTRY_JITDUMP = 4,    /* jit-PID.dump, for `windlass record` and perf inject */
  WINDLASS_REGISTRY_SFRAME = 8      /* sframe_register(), where there is one: the kernel's unwinder */
};
typedef struct windlass_registrar windlass_registrar;

/* `folder` of the file, where it is one; NULL: /tmp, and the working directory for a jitdump. WINDLASS_UNSUPPORTED
 * where the process has no such registry. [any] */
WINDLASS_API windlass_status windlass_open_registrar(uint32_t registry, const char* folder,
                                                     windlass_registrar** registrar, windlass_error* error);
/* `count` functions, each of the first one's `size`: all of them or, with an error, none. Errors name the function by
 * its address, or the offset into its code: WINDLASS_MALFORMED, WINDLASS_OUT_OF_RANGE. [any] */
WINDLASS_API windlass_status windlass_register(windlass_registrar* registrar, const windlass_generated* functions,
                                               size_t count, uint64_t* id, windlass_error* error);
/* Before other code is written there. WINDLASS_NOT_FOUND. [any] */
WINDLASS_API windlass_status windlass_unregister(windlass_registrar* registrar, uint64_t id, windlass_error* error);
/* All code of a batch is at other addresses now, none of it running: `functions` as they would be registered there, and
 * in `from` where each of them was. All of the batch, those too that stay, each of its size. It keeps its id.
 * WINDLASS_NOT_FOUND: there is no such batch, WINDLASS_INVALID: an argument that is not set up; with any other error
 * the batch is unregistered. [any] */
WINDLASS_API windlass_status windlass_move(windlass_registrar* registrar, uint64_t id, const uint64_t* from,
                                           const windlass_generated* functions, size_t count, windlass_error* error);
/* With all that is still registered. */
WINDLASS_API windlass_status windlass_close_registrar(windlass_registrar* registrar);

/* ---- a heap of generated code whose functions come and go --------------------------------------------------
 *
 * One table in a memfd ("/memfd:windlass-code") that walks of this process, signal handlers, other processes and core
 * files read without help (windlass/code_manager.h): many functions, a call for many at a time. Linux. */

typedef struct windlass_managed {
  size_t size;
  uint64_t address;   /* of its first byte */
  uint64_t code_size; /* bytes, below 2 GiB */
  const char* name;   /* may be NULL; copied, as all else */
  uint32_t user;      /* the runtime's own number, only kept */
  uint32_t row_count;
  const windlass_row* rows;           /* ascending, disjoint, in the function; or */
  const windlass_generated* prologue; /* of the same code_size, its address and name not looked at; without either the
                                         code is followed */
} windlass_managed;
typedef struct windlass_code_manager windlass_code_manager;

/* For code of this process in [begin, end), at most 4 GiB, and `functions` of them at a time; 0: a million. All walks
 * of this process see its functions, as with windlass_add_own_code. WINDLASS_OUT_OF_RANGE, WINDLASS_MALFORMED for a
 * range that overlaps another, WINDLASS_SYSTEM where there is no memfd. [any] */
WINDLASS_API windlass_status windlass_open_code_manager(uint64_t begin, uint64_t end, uint32_t functions,
                                                        windlass_code_manager** manager, windlass_error* error);
/* Removes the functions that begin at `removed`, when they run no more, and then adds `count`, each of the first one's
 * `size`, before they run: all of those or, with an error, none. WINDLASS_NOT_FOUND: none begins at one of `removed`;
 * those before it are gone. WINDLASS_MALFORMED: one overlaps another; rows or prologue are wrong.
 * WINDLASS_OUT_OF_RANGE: one is not in the range. WINDLASS_LIMIT: no room. WINDLASS_UNSUPPORTED: in a forked child.
 * [any] */
WINDLASS_API windlass_status windlass_manage(windlass_code_manager* manager, const uint64_t* removed,
                                             size_t removed_count, const windlass_managed* functions, size_t count,
                                             windlass_error* error);
/* The function that contains an address: where it begins, its size and number, and its name in `name`, cut to
 * `name_size` with a 0 at its end (0: not asked for). WINDLASS_NOT_FOUND; WINDLASS_LIMIT where others change without
 * end. [signal] */
WINDLASS_API windlass_status windlass_find_managed(const windlass_code_manager* manager, uint64_t address,
                                                   windlass_managed* found, char* name, size_t name_size);
/* The table's memfd: stays the manager's. -1 for one that is closed. [any] */
WINDLASS_API int windlass_code_manager_fd(const windlass_code_manager* manager);
/* With all its functions: walks do not know them any more. Not while another thread uses the manager. */
WINDLASS_API windlass_status windlass_close_code_manager(windlass_code_manager* manager);
/* The functions of a manager, by its memfd, for the walks of this process, if it is not windlass_open_code_manager's:
 * that one's are known. The memfd may be closed then. Ends with windlass_retire_own_code. [any] */
WINDLASS_API windlass_status windlass_add_own_managed_code(int memfd, uint64_t* id, windlass_error* error);

/* Removes the module, or retires the code range, that begins there. WINDLASS_NOT_FOUND. [setup] */
WINDLASS_API windlass_status windlass_remove(windlass_space* space, uint64_t begin);

/* How many there are, by ascending address; one of them; the one that contains an address (WINDLASS_NOT_FOUND).
 * [any], and windlass_find_module [signal] */
WINDLASS_API windlass_status windlass_module_count(const windlass_space* space, size_t* count);
WINDLASS_API windlass_status windlass_module_at(const windlass_space* space, size_t index, windlass_module* module);
WINDLASS_API windlass_status windlass_find_module(const windlass_space* space, uint64_t address,
                                                  windlass_module* module);

/* ---- threads (of a process, core file or minidump) ------------------------------------------------------- */

#define WINDLASS_FAULTED 1u /* the thread that crashed */

typedef struct windlass_thread {
  size_t size;
  uint64_t id;
  const char* name; /* valid until the space is closed */
  uint32_t flags;   /* WINDLASS_FAULTED */
  uint32_t reserved;
} windlass_thread;

/* WINDLASS_NOT_FOUND for an index that is not one. `thread` or `registers` may be NULL. [any] */
WINDLASS_API windlass_status windlass_thread_count(const windlass_space* space, size_t* count);
WINDLASS_API windlass_status windlass_thread_at(const windlass_space* space, size_t index, windlass_thread* thread,
                                                windlass_registers* registers);

/* ---- walking --------------------------------------------------------------------------------------------- */

/* Who found a frame from its callee. */
enum {
  WINDLASS_ORIGIN_CONTEXT = 0,       /* nobody: the registers the walk started with */
  WINDLASS_ORIGIN_CFI = 1,           /* call frame information of an ELF file */
  WINDLASS_ORIGIN_CODE = 2,          /* the instructions of the code itself */
  WINDLASS_ORIGIN_FRAME_POINTER = 3, /* the chain of frame pointers */
  WINDLASS_ORIGIN_LEAF = 4,          /* a return address on top of the stack, or in the link register */
  WINDLASS_ORIGIN_PDATA = 5          /* unwind information of a PE image */
};
/* How sure it is that a frame is the caller of the one before it; the surest first. */
enum {
  WINDLASS_CERTAINTY_DESCRIBED = 0, /* by unwind information, or by what the system defines; the first frame, too */
  WINDLASS_CERTAINTY_PROVED = 1,    /* by the code */
  WINDLASS_CERTAINTY_CHECKED = 2,   /* by code behind calls, or a frame pointer that is used, and the call fits */
  WINDLASS_CERTAINTY_CHAINED = 3,   /* by an intact chain of frame pointers alone: the walk cannot end as complete */
  WINDLASS_CERTAINTY_GUESSED = 4    /* none of these: likewise */
};
/* How a walk ended. */
enum {
  WINDLASS_END_RUNNING = 0,     /* it has not */
  WINDLASS_END_COMPLETE = 1,    /* the outermost frame was reached, and no frame is a guess */
  WINDLASS_END_NO_MODULE = 2,   /* the pc lies in nothing known */
  WINDLASS_END_NO_ROW = 3,      /* no unwinder found the caller */
  WINDLASS_END_UNREADABLE = 4,  /* the stack could not be read */
  WINDLASS_END_LOST = 5,        /* a register that is needed is not known here */
  WINDLASS_END_NO_PROGRESS = 6, /* the stack does not move */
  WINDLASS_END_BAD_ROW = 7,     /* unwind information that contradicts itself */
  WINDLASS_END_LIMIT = 8,       /* more frames than asked for */
  WINDLASS_END_GUESSED = 9,     /* the last frame looks like the outermost one, but that, or a frame, is a guess */
  WINDLASS_END_FOREIGN = 10,    /* code of another machine */
  WINDLASS_END_BUDGET = 11,     /* the caller was not found in the time that a walk in a signal handler may take */
  WINDLASS_END_CHAINED = 12,    /* the outermost frame was reached, in part by a chain of frame pointers alone */
  WINDLASS_END_STOPPED = 100    /* windlass_walk: the callback said so */
};
/* "cfi", "described", "complete" and so on; "?" for another number. Static. [signal] */
WINDLASS_API const char* windlass_origin_name(uint32_t origin);
WINDLASS_API const char* windlass_certainty_name(uint32_t certainty);
WINDLASS_API const char* windlass_end_name(uint32_t end);

typedef struct windlass_options {
  size_t size;
  uint64_t max_frames; /* 0: 65536 */
  uint32_t flags;      /* WINDLASS_NO_CODE_ANALYSIS */
  uint32_t reserved;
} windlass_options;
#define WINDLASS_NO_CODE_ANALYSIS 1u /* unwind information, frame pointers and leaves only */

typedef struct windlass_frame {
  size_t size;
  uint64_t pc;
  uint64_t sp;
  uint64_t lookup; /* where to look symbols and lines up: pc, or pc - 1 where it is a return address */
  uint32_t origin; /* WINDLASS_ORIGIN_... */
  uint32_t flags;  /* WINDLASS_RETURN_ADDRESS, WINDLASS_SIGNAL_FRAME */
  uint64_t index;  /* 0 for the innermost */
  /* What contains it; begin = end = 0 and path NULL where nothing does. lookup - module_bias is the address in the
   * file. */
  uint64_t module_begin;
  uint64_t module_end;
  uint64_t module_bias;
  const char* module_path; /* valid until the module is removed */
  uint32_t certainty;      /* WINDLASS_CERTAINTY_... */
  uint32_t reserved;
} windlass_frame;

/* One frame of a walk. */
typedef struct windlass_cursor windlass_cursor;

/* Nonzero stops the walk. The cursor is at the frame; it must not be stepped. */
typedef int (*windlass_callback)(windlass_cursor* cursor, const windlass_frame* frame, void* user);

/* Calls `callback` for every frame, innermost first, the first being `registers`. `options`, `end` (WINDLASS_END_...)
 * and `error` may be NULL. A walk that ends early is still WINDLASS_OK; `error` then says what happened. At the end of
 * a whole stack it is emptied: WINDLASS_OK, no text. Bounded by max_frames. [signal] on a space of this process, or
 * with a `read` that is. Needs up to 40 KiB of stack. */
WINDLASS_API windlass_status windlass_walk(const windlass_space* space, const windlass_registers* registers,
                                           const windlass_options* options, windlass_callback callback, void* user,
                                           uint32_t* end, windlass_error* error);

/* One frame, without a cursor: `registers` become the caller's. WINDLASS_END at the end, with the registers as they
 * were and the reason in `end`. `frame` (may be NULL) describes the new one; its index is 1. That the stack moves is
 * checked for this step alone. [signal] as windlass_walk. */
WINDLASS_API windlass_status windlass_step_registers(const windlass_space* space, windlass_registers* registers,
                                                     windlass_frame* frame, uint32_t* end, windlass_error* error);

/* Bytes and alignment of the memory a cursor lives in; constant while the library is loaded. [signal] */
WINDLASS_API size_t windlass_cursor_size(void);
#define WINDLASS_CURSOR_ALIGNMENT 16

/* A cursor in memory of the caller's: a static buffer, the stack, one of a pool. `registers` are copied. [signal] */
WINDLASS_API windlass_status windlass_cursor_init(void* storage, size_t storage_size, const windlass_space* space,
                                                  const windlass_registers* registers, const windlass_options* options,
                                                  windlass_cursor** cursor, windlass_error* error);
/* Every cursor is ended, before its storage goes. [signal] */
WINDLASS_API windlass_status windlass_cursor_end(windlass_cursor* cursor);
/* To the caller. WINDLASS_END where there is none: the cursor stays at the last frame. [signal] as windlass_walk */
WINDLASS_API windlass_status windlass_step(windlass_cursor* cursor, windlass_error* error);
/* WINDLASS_END_RUNNING until windlass_step has returned WINDLASS_END. [signal] */
WINDLASS_API windlass_status windlass_end_reason(const windlass_cursor* cursor, uint32_t* end);

/* Of the frame at hand. [signal] */
WINDLASS_API windlass_status windlass_cursor_frame(const windlass_cursor* cursor, windlass_frame* frame);
WINDLASS_API windlass_status windlass_cursor_registers(const windlass_cursor* cursor, windlass_registers* registers);
WINDLASS_API windlass_status windlass_cursor_get(const windlass_cursor* cursor, uint32_t number, uint64_t* value);
/* Where one of its callees saved the register: writing there changes it for this frame, once its callees return.
 * *address is 0 where it still is in the register itself (the value windlass_cursor_get gives is then live in the
 * thread). WINDLASS_NOT_FOUND: not known. Of sp there is no place: it is computed. [signal] */
WINDLASS_API windlass_status windlass_saved_at(const windlass_cursor* cursor, uint32_t number, uint64_t* address);

#ifdef __cplusplus
}
#endif

#endif /* WINDLASS_H */
