/* Windlass, the C interface: walks stacks of this process, of another process, of a core file, of a minidump, or of
 * memory that callbacks read. C99 and C++; needs only the standard headers below.
 *
 * For example, to walk the calling thread's own stack:
 *
 *   windlass_space* space = NULL;
 *   windlass_registers registers;
 *   registers.size = sizeof registers;
 *
 *   windlass_open_self(&space, NULL);
 *   windlass_capture_registers(&registers);
 *   windlass_walk(space, &registers, NULL, each_frame, NULL, NULL, NULL);
 *
 *   windlass_close(space);
 *
 * Conventions
 *
 * - Structs begin with `size`, which the caller sets to the sizeof it was compiled with. The library reads and writes
 *   no byte beyond it. New members come at the end only. WINDLASS_INVALID if the library never had this size. Also if a
 *   member that the library does not know is not zero.
 *
 * - Functions return WINDLASS_OK or another windlass_status. Where the last argument is `error`, it may be NULL.
 *   WINDLASS_INVALID for a null pointer where a pointer is needed, a wrong size or a closed handle; never a crash. A
 *   closed handle stays invalid until its memory is used for a handle that is opened later.
 *
 * - Registers are named by DWARF number. x86-64: 0-15 general, 16 the pc (System V psABI, figure 3.36). AArch64: 0-30,
 *   31 sp, 32 the pc, 34 ra_sign_state, 72-79 d8-d15 (AADWARF64, table 1).
 *
 * Threads and signals: each function has a mark.
 *
 *   [any]     Any thread, at any time.
 *   [signal]  Also in a signal handler: no lock, no allocation, no system call that is not async-signal-safe.
 *   [setup]   Not while another thread uses the same space; not in a signal handler.
 *
 * One thread at a time uses a cursor. Any number of cursors may use a space.
 *
 * Further headers with the same conventions: c/unwind_info.h reads unwind information, c/managed.h is for
 * managed runtimes, c/symbols.h names addresses. */
#ifndef WINDLASS_C_WINDLASS_H
#define WINDLASS_C_WINDLASS_H

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
#define WINDLASS_VERSION_MINOR 2
#define WINDLASS_VERSION_PATCH 0
/* The version of the loaded library: major << 16 | minor << 8 | patch. And as text, for example "0.2.0". [signal] */
WINDLASS_API uint32_t windlass_version(void);
WINDLASS_API const char* windlass_version_text(void);

/* ---- errors ---------------------------------------------------------------------------------------------- */

/* The result of a function: WINDLASS_OK or the kind of an error. */
typedef int windlass_status;
enum {
  WINDLASS_OK = 0,
  WINDLASS_END = 1,          /* windlass_step: the walk has ended; windlass_end_reason says why. */
  WINDLASS_INVALID = 2,      /* The call itself is wrong: see the conventions above. */
  WINDLASS_NO_MEMORY = 3,    /* For a handle. */
  WINDLASS_TRUNCATED = 4,    /* The bytes end before the record does. */
  WINDLASS_MALFORMED = 5,    /* The bytes contradict their specification. */
  WINDLASS_UNSUPPORTED = 6,  /* Well-formed, but of a kind that this build does not interpret. */
  WINDLASS_OUT_OF_RANGE = 7, /* A size, index or address outside the thing that contains it. */
  WINDLASS_NOT_FOUND = 8,    /* No such module, register, thread or file. */
  WINDLASS_LIMIT = 9,        /* A stated bound was reached. */
  WINDLASS_UNREADABLE = 10,  /* Memory of the target could not be read. */
  WINDLASS_SYSTEM = 11       /* The operating system refused; `detail` is errno. */
};

/* The kind of an error, a sentence for people, and the place. */
typedef struct windlass_error {
  size_t size;
  windlass_status status;
  uint32_t reserved;
  uint64_t where;  /* A file offset or an address; the text says which. */
  uint64_t detail; /* A number that belongs to the error, or 0. */
  char text[256];  /* A sentence, NUL-terminated, cut if longer. */
} windlass_error;

/* The name of a status, for example "WINDLASS_INVALID"; "?" for another number. A static string. [signal] */
WINDLASS_API const char* windlass_status_name(windlass_status status);

/* ---- registers ------------------------------------------------------------------------------------------- */

enum { WINDLASS_X86_64 = 0, WINDLASS_AARCH64 = 1, WINDLASS_I386 = 2 };
/* The architecture that this library was built for. [signal] */
WINDLASS_API uint32_t windlass_native_architecture(void);

/* Bits of windlass_registers.flags and windlass_frame.flags. */
#define WINDLASS_RETURN_ADDRESS 1u /* pc is a return address: the call before it is running. */
#define WINDLASS_SIGNAL_FRAME 2u   /* windlass_frame only: a signal interrupted this frame. */

/* The registers of a frame. Read and write them by the functions below; the order of `value` belongs to the
 * library. */
typedef struct windlass_registers {
  size_t size;
  uint32_t architecture; /* WINDLASS_X86_64, ... */
  uint32_t flags;        /* WINDLASS_RETURN_ADDRESS. */
  uint64_t known;
  uint64_t value[44];
} windlass_registers;

/* Empties `registers` for an architecture. `registers->size` must be set. [signal] */
WINDLASS_API windlass_status windlass_registers_init(windlass_registers* registers, uint32_t architecture);
/* Gets a register's value. WINDLASS_NOT_FOUND: not known in this frame. WINDLASS_OUT_OF_RANGE: no register that can be
 * kept. [signal] */
WINDLASS_API windlass_status windlass_get(const windlass_registers* registers, uint32_t number, uint64_t* value);
/* Sets a register's value. A pc that is set is an instruction's address. For a return address, set `flags` too.
 * [signal] */
WINDLASS_API windlass_status windlass_set(windlass_registers* registers, uint32_t number, uint64_t value);
/* Writes the numbers of the registers that calls preserve to `numbers`, ascending, at most `capacity`. Returns how many
 * there are. [signal] */
WINDLASS_API uint32_t windlass_preserved(uint32_t architecture, uint16_t* numbers, uint32_t capacity);

/* Captures the caller's own registers, as they are when this call returns. A walk from them begins in the calling
 * function. [signal] */
WINDLASS_API windlass_status windlass_capture_registers(windlass_registers* registers);
/* Gets the registers from the third argument of an SA_SIGINFO handler: a ucontext_t of this process. [signal] */
WINDLASS_API windlass_status windlass_from_ucontext(const void* ucontext, windlass_registers* registers);

/* ---- address spaces -------------------------------------------------------------------------------------- */

/* Memory, modules and code ranges of a process. */
typedef struct windlass_space windlass_space;

/* Memory that is not this process's own. */
typedef struct windlass_memory {
  size_t size;
  /* Copies [address, address + length) to `to`. Returns nonzero if all of it could be read. Called during every step,
   * on the stepping thread. Must be signal-safe if signal handlers step. */
  int (*read)(void* user, uint64_t address, void* to, size_t length);
  /* Called once when the space is closed. May be NULL. */
  void (*release)(void* user);
  void* user;
} windlass_memory;

/* Opens this process. Its modules are found without help. Code made at run time is added with windlass_add_own_code.
 * [any] */
WINDLASS_API windlass_status windlass_open_self(windlass_space** space, windlass_error* error);
/* Opens another process, and stops its threads (ptrace) until the space is closed, on any thread. WINDLASS_SYSTEM if
 * there is no such process, or tracing is not allowed. If another process traces it already, `where` is that process.
 * [any] */
WINDLASS_API windlass_status windlass_open_process(int64_t pid, windlass_space** space, windlass_error* error);

/* Lets the threads of a process go on. Nothing may be read of the space until windlass_refresh. *stopped_ns (may be
 * NULL) becomes the nanoseconds for which threads were stopped: from the interruption of the first thread until the
 * last went on. 0 for other spaces, and if no thread is stopped. [setup] */
WINDLASS_API windlass_status windlass_release(windlass_space* space, uint64_t* stopped_ns);

/* The changes that windlass_refresh found. */
typedef struct windlass_refreshed {
  size_t size;
  uint64_t modules_gone; /* Modules, and ranges of code without a file. */
  uint64_t modules_new;
  uint32_t executed; /* 1: the process has become another program (execve). */
  uint32_t reserved;
} windlass_refreshed;

/* Stops a process again, and brings its threads, problems, notes and modules up to date. A process that is still
 * stopped goes on first. This takes a hundredth of the time to open it anew, since unchanged modules keep everything.
 * All cursors of the space are invalid afterwards. `changed` may be NULL.
 *
 * Errors: those of windlass_open_process. WINDLASS_SYSTEM with ESRCH as `detail` after the process has ended.
 * WINDLASS_UNSUPPORTED for other spaces. After an error no thread is stopped, and there are no threads. [setup] */
WINDLASS_API windlass_status windlass_refresh(windlass_space* space, windlass_refreshed* changed,
                                              windlass_error* error);

/* Where to find the files of a dead process, if not at their own paths. NULL where not needed. */
typedef struct windlass_files {
  size_t size;
  const char* sysroot;    /* Put before every path, and searched before the path itself. */
  const char* executable; /* The program's own file. */
} windlass_files;

/* Opens an ELF core file. `files` may be NULL. Damaged parts: windlass_problem_at. [any] */
WINDLASS_API windlass_status windlass_open_core(const char* path, const windlass_files* files, windlass_space** space,
                                                windlass_error* error);
/* Opens a minidump, made by Windows, Breakpad or Crashpad. [any] */
WINDLASS_API windlass_status windlass_open_minidump(const char* path, const windlass_files* files,
                                                    windlass_space** space, windlass_error* error);
/* Gets a part that could not be read of a process or dump (windlass_problem_at), or a note for people
 * (windlass_note_at). Notes tell for example of files that are missing, or are not those that ran. WINDLASS_NOT_FOUND
 * for an index past the last. [any] */
WINDLASS_API windlass_status windlass_problem_at(const windlass_space* space, size_t index, windlass_error* problem);
WINDLASS_API windlass_status windlass_note_at(const windlass_space* space, size_t index, const char** text);

/* Opens memory that callbacks read. There are no modules and no threads at first. `memory` is copied; on failure it is
 * not released. [any] */
WINDLASS_API windlass_status windlass_open_callbacks(uint32_t architecture, const windlass_memory* memory,
                                                     windlass_space** space, windlass_error* error);
/* Closes a space. The handle and its cursors are invalid afterwards. A process that was opened runs on. [setup] */
WINDLASS_API windlass_status windlass_close(windlass_space* space);
/* The architecture of a space. [any] */
WINDLASS_API windlass_status windlass_space_architecture(const windlass_space* space, uint32_t* architecture);

/* ---- modules and code ranges ----------------------------------------------------------------------------- */

/* A mapped file, or a range of code without a file. */
typedef struct windlass_module {
  size_t size;
  uint64_t begin;    /* The first address. */
  uint64_t end;      /* The address behind the last. */
  uint64_t bias;     /* Address in the process - bias = address in the file. */
  const char* path;  /* As the process knows the file. In results: valid until the module is removed. */
  const char* file;  /* Where to read the file here, if under another path; else NULL. */
  const void* image; /* windlass_add_module: the file's bytes, to be used instead of the file; copied. */
  size_t image_size;
} windlass_module;

/* Adds a module. A file that cannot be read is no error: its code is then unwound by its instructions.
 * WINDLASS_MALFORMED for an empty range, or a range that overlaps another. [setup] */
WINDLASS_API windlass_status windlass_add_module(windlass_space* space, const windlass_module* module,
                                                 windlass_error* error);

/* How to find the caller from the code in [begin, end). CFA = cfa_register + cfa_offset, which is the caller's stack
 * pointer. A preserved register that is not in `saved` keeps its value. For example, behind `push rbp; mov rbp, rsp`:
 * CFA = rbp + 16, return_offset -8, and register 6 saved at -16. */
typedef struct windlass_saved_register {
  uint32_t number;
  int32_t offset; /* The register is at CFA + offset. */
} windlass_saved_register;
typedef struct windlass_row {
  uint64_t begin; /* Addresses of the process. */
  uint64_t end;
  uint32_t cfa_register;
  int32_t cfa_offset;
  int32_t return_offset; /* The return address is at CFA + this; 0 (AArch64): in the link register. */
  uint32_t saved_count;
  const windlass_saved_register* saved;
} windlass_row;

/* Code made at run time, with unwind information in some form, or none. Without any, the instructions are followed.
 * Everything is copied. */
typedef struct windlass_code {
  size_t size;
  uint64_t begin;
  uint64_t end;
  const char* name;         /* May be NULL. */
  const windlass_row* rows; /* Ascending, disjoint, in the range. */
  size_t row_count;
  const void* eh_frame; /* A section .eh_frame, whose FDEs lie in the range. */
  size_t eh_frame_size;
  uint64_t eh_frame_address; /* Its pointers count from here: the address of the section, if it is in the process. */
} windlass_code;

/* Adds code for walks in a space. Every walk that begins later sees the code. `id` (may be NULL) becomes a number
 * that is never given twice.
 *
 * WINDLASS_MALFORMED for a range that is empty, or overlaps another (`where`: where that begins). Also for rows that
 * are not ascending, or not in the range. An error in .eh_frame has its offset. Locks and allocates, but others may
 * walk meanwhile. [any] */
WINDLASS_API windlass_status windlass_add_code(windlass_space* space, const windlass_code* code, uint64_t* id,
                                               windlass_error* error);
/* Retires code: no walk that begins later sees the range. Call before other code is written there. The memory is freed
 * when the walks that were under way have ended. WINDLASS_NOT_FOUND. [any] */
WINDLASS_API windlass_status windlass_retire_code(windlass_space* space, uint64_t id, windlass_error* error);

/* Adds and retires code for all walks of this process: in every space of windlass_open_self, and by the functions of
 * libwindlass-unwind.so. A process may hold several copies of this library. Copies whose symbols come after this copy's
 * are told too. [any] */
WINDLASS_API windlass_status windlass_add_own_code(const windlass_code* code, uint64_t* id, windlass_error* error);
WINDLASS_API windlass_status windlass_retire_own_code(uint64_t id, windlass_error* error);

/* ---- generated code made known to others ------------------------------------------------------------------
 *
 * A function is described once. It can then be registered with the unwinder of libgcc or LLVM, with debuggers, with
 * profilers and for walks of this process. docs/how-to/describe-your-jit.md shows how. Not on Windows. */

/* The action of an instruction of a prologue. */
enum {
  WINDLASS_ALLOCATE = 0,            /* sp -= bytes. */
  WINDLASS_SAVE = 1,                /* sp -= bytes; [sp + offset] = reg; [sp + offset + 8] = second. */
  WINDLASS_SET_FRAME_POINTER = 2,   /* reg = sp + offset. */
  WINDLASS_SIGN_RETURN_ADDRESS = 3, /* AArch64: paciasp. */
  WINDLASS_ALLOCATE_VECTORS = 4,    /* SVE: sp -= bytes x the length of a vector. */
  WINDLASS_SAVE_VECTOR = 5          /* SVE: [sp + offset x the length of reg] = reg, a z or p register. */
};
#define WINDLASS_NO_REGISTER 0xffffu

/* An action, and the instruction that does it. For example, x86-64's `push rbx` is {1, WINDLASS_SAVE, 3,
 * WINDLASS_NO_REGISTER, 0, 8}. */
typedef struct windlass_op {
  uint32_t end;    /* The end of the instruction, from the function's first byte. */
  uint32_t action; /* WINDLASS_ALLOCATE, ... */
  uint16_t reg;    /* DWARF numbers. */
  uint16_t second; /* WINDLASS_SAVE: WINDLASS_NO_REGISTER for none. */
  uint32_t offset;
  uint64_t bytes; /* x86-64's push: 8, with offset 0. */
} windlass_op;

/* The instructions that take back the actions of a prologue, in the order of the code. If `undone` is empty, everything
 * is taken back in reverse, by the instructions that compilers use: add or lea, pop, ret; on AArch64 one for each
 * action. `end` is then ignored. */
typedef struct windlass_epilogue {
  uint32_t begin;
  uint32_t end; /* Behind the return or jump. */
  const windlass_op* undone;
  size_t undone_count;
} windlass_epilogue;

/* How the code of a function builds and takes down its frame. For example, a function without a frame has no ops. */
typedef struct windlass_prologue {
  size_t size;
  const windlass_op* ops;
  size_t op_count;
  const windlass_epilogue* epilogues;
  size_t epilogue_count;
} windlass_prologue;

/* A function as its code generator knows it. Registrars and code managers take the same description. For example:
 *
 *   windlass_generated f = {.size = sizeof f, .address = code, .code_size = 40, .name = "add", .prologue = &prologue};
 *
 * The memory behind pointers is read during a call only. */
typedef struct windlass_generated {
  size_t size;
  uint64_t address;   /* The address of the first byte. */
  uint64_t code_size; /* Bytes of code, below 2 GiB. */
  const char* name;   /* May be NULL. */
  uint32_t user;      /* The runtime's own number. A code manager keeps it, and registrars do not. */
  uint32_t row_count;
  /* How the function unwinds, in one of two forms: rows or a prologue. Rows are ascending, disjoint, in the function.
   * Registrars need one of the forms, and rows for all of the code. In a code manager, code without rows is
   * followed. */
  const windlass_row* rows;
  const windlass_prologue* prologue;
  uint64_t personality; /* The personality routine, for exceptions; 0: none. */
  uint64_t language_data;
} windlass_generated;

/* The tools that can be told about generated code. */
enum {
  WINDLASS_REGISTRY_OWN = 0,         /* Walks of this process by this copy of the library. */
  WINDLASS_REGISTRY_FRAME_INFO = 1,  /* __register_frame(): the unwinder of libgcc or LLVM. */
  WINDLASS_REGISTRY_GDB = 2,         /* GDB's JIT interface. */
  WINDLASS_REGISTRY_PERF_MAP = 3,    /* /tmp/perf-PID.map. */
  WINDLASS_REGISTRY_JITDUMP = 4,     /* jit-PID.dump, for `windlass record` and perf inject. */
  WINDLASS_REGISTRY_CODE_MANAGER = 8 /* A code manager for a heap, behind the functions of registrars. Linux. */
};
typedef struct windlass_registrar windlass_registrar;

/* Each member belongs to some registries only. */
typedef struct windlass_registrar_options {
  size_t size;
  const char* folder;  /* The folder of the file. NULL: /tmp; for a jitdump, the working directory. */
  uint64_t heap_begin; /* WINDLASS_REGISTRY_CODE_MANAGER: all code will lie in [heap_begin, heap_end), at most 4 GiB. */
  uint64_t heap_end;
} windlass_registrar_options;

/* Opens a registry. `options` may be NULL. WINDLASS_UNSUPPORTED if the process has no such registry. [any] */
WINDLASS_API windlass_status windlass_open_registrar(uint32_t registry, const windlass_registrar_options* options,
                                                     windlass_registrar** registrar, windlass_error* error);
/* Registers a batch of `count` functions, each of the first function's `size`: all, or with an error none. An error
 * names the function by its address, or the offset into its code. WINDLASS_MALFORMED, WINDLASS_OUT_OF_RANGE. [any] */
WINDLASS_API windlass_status windlass_register(windlass_registrar* registrar, const windlass_generated* functions,
                                               size_t count, uint64_t* id, windlass_error* error);
/* Removes a batch. Call before other code is written there. WINDLASS_NOT_FOUND. [any] */
WINDLASS_API windlass_status windlass_unregister(windlass_registrar* registrar, uint64_t id, windlass_error* error);
/* Tells that the code of a batch is at other addresses, and that none of it runs. `functions` are all functions of the
 * batch, as they would be registered at the new addresses. `from` has the old address of each. Functions that stay are
 * listed too, and each keeps its size. The batch keeps its id.
 *
 * WINDLASS_NOT_FOUND: there is no such batch. WINDLASS_INVALID: an argument is not set up. With any other error the
 * batch is unregistered. [any] */
WINDLASS_API windlass_status windlass_move(windlass_registrar* registrar, uint64_t id, const uint64_t* from,
                                           const windlass_generated* functions, size_t count, windlass_error* error);
/* Closes a registrar, and removes everything that is still registered. */
WINDLASS_API windlass_status windlass_close_registrar(windlass_registrar* registrar);

/* ---- a heap of generated code whose functions come and go --------------------------------------------------
 *
 * The functions are in a table in a memfd ("/memfd:windlass-code"). Walks of this process, signal handlers, other
 * processes and core files read the table directly (windlass/jit/code_manager.h). Many functions can be added or
 * removed in a call. Linux. */

typedef struct windlass_code_manager windlass_code_manager;

/* Opens a manager for code of this process in [begin, end), at most 4 GiB. It has room for `functions` at a time; 0: a
 * million. All walks of this process see its functions, as with windlass_add_own_code. WINDLASS_OUT_OF_RANGE for a
 * larger range. WINDLASS_MALFORMED for a range that overlaps another. WINDLASS_SYSTEM if there is no memfd. [any] */
WINDLASS_API windlass_status windlass_open_code_manager(uint64_t begin, uint64_t end, uint32_t functions,
                                                        windlass_code_manager** manager, windlass_error* error);
/* Removes functions, and then adds others. `removed` are the begins of functions that run no more. `functions` are the
 * new ones, each of the first function's `size`, before they run. Either all are added or, with an error, none. [any]
 *
 * - WINDLASS_NOT_FOUND: no function begins at an address in `removed`. The functions before that are removed.
 * - WINDLASS_MALFORMED: a function overlaps another; rows or a prologue are wrong.
 * - WINDLASS_OUT_OF_RANGE: a function is not in the range.
 * - WINDLASS_LIMIT: no room.
 * - WINDLASS_UNSUPPORTED: this is a forked child. */
WINDLASS_API windlass_status windlass_manage(windlass_code_manager* manager, const uint64_t* removed,
                                             size_t removed_count, const windlass_generated* functions, size_t count,
                                             windlass_error* error);
/* Finds the function that contains an address: its begin, size and number. Its name goes to `name`, cut to `name_size`
 * with a NUL at the end; 0: no name. WINDLASS_NOT_FOUND. WINDLASS_LIMIT if other threads change the table without end.
 * [signal] */
WINDLASS_API windlass_status windlass_find_managed(const windlass_code_manager* manager, uint64_t address,
                                                   windlass_generated* found, char* name, size_t name_size);
/* The memfd of the table, which the manager closes. -1 for a closed manager. [any] */
WINDLASS_API int windlass_code_manager_fd(const windlass_code_manager* manager);
/* Closes a manager with all its functions: walks no longer know them. Not while another thread uses the manager. */
WINDLASS_API windlass_status windlass_close_code_manager(windlass_code_manager* manager);
/* Makes the functions of a manager known to the walks of this process by the manager's memfd. The memfd may be closed
 * afterwards. Not needed for a manager of windlass_open_code_manager, whose functions are known.
 * windlass_retire_own_code ends it. [any] */
WINDLASS_API windlass_status windlass_add_own_managed_code(int memfd, uint64_t* id, windlass_error* error);

/* Removes the module, or retires the code range, that begins at `begin`. WINDLASS_NOT_FOUND. [setup] */
WINDLASS_API windlass_status windlass_remove(windlass_space* space, uint64_t begin);

/* The number of modules and code ranges; the module at an index, by ascending address; the module that contains an
 * address. WINDLASS_NOT_FOUND. [any], and windlass_find_module [signal] */
WINDLASS_API windlass_status windlass_module_count(const windlass_space* space, size_t* count);
WINDLASS_API windlass_status windlass_module_at(const windlass_space* space, size_t index, windlass_module* module);
WINDLASS_API windlass_status windlass_find_module(const windlass_space* space, uint64_t address,
                                                  windlass_module* module);

/* ---- threads (of a process, core file or minidump) ------------------------------------------------------- */

#define WINDLASS_FAULTED 1u /* The thread that crashed. */

/* A thread of a process or dump. */
typedef struct windlass_thread {
  size_t size;
  uint64_t id;
  const char* name; /* Valid until the space is closed. */
  uint32_t flags;   /* WINDLASS_FAULTED. */
  uint32_t reserved;
} windlass_thread;

/* The number of threads; the thread at an index, with its registers. `thread` or `registers` may be NULL.
 * WINDLASS_NOT_FOUND for an index past the last. [any] */
WINDLASS_API windlass_status windlass_thread_count(const windlass_space* space, size_t* count);
WINDLASS_API windlass_status windlass_thread_at(const windlass_space* space, size_t index, windlass_thread* thread,
                                                windlass_registers* registers);

/* ---- walking --------------------------------------------------------------------------------------------- */

/* How a frame was found from its callee. */
enum {
  WINDLASS_ORIGIN_CONTEXT = 0,       /* The registers that the walk started with. */
  WINDLASS_ORIGIN_CFI = 1,           /* Call frame information of an ELF file. */
  WINDLASS_ORIGIN_CODE = 2,          /* The instructions of the code itself. */
  WINDLASS_ORIGIN_FRAME_POINTER = 3, /* The chain of frame pointers. */
  WINDLASS_ORIGIN_LEAF = 4,          /* A return address on top of the stack, or in the link register. */
  WINDLASS_ORIGIN_PDATA = 5          /* Unwind information of a PE image. */
};
/* How sure a frame is the caller of the frame before; the surest first. docs/explanation/certainty.md has the rules. */
enum {
  WINDLASS_CERTAINTY_DESCRIBED = 0, /* By unwind information, or by rules of the system. The first frame, too. */
  WINDLASS_CERTAINTY_PROVED = 1,    /* By the code. */
  WINDLASS_CERTAINTY_CHECKED = 2,   /* By code behind calls, or a frame pointer that is used; and the call fits. */
  WINDLASS_CERTAINTY_CHAINED = 3,   /* By an intact chain of frame pointers alone. The walk cannot end as complete. */
  WINDLASS_CERTAINTY_GUESSED = 4    /* None of these. The walk cannot end as complete. */
};
/* How a walk ended. */
enum {
  WINDLASS_END_RUNNING = 0,     /* The walk has not ended. */
  WINDLASS_END_COMPLETE = 1,    /* The outermost frame was reached, and no frame is chained or a guess. */
  WINDLASS_END_NO_MODULE = 2,   /* The pc lies in no module and no code range. */
  WINDLASS_END_NO_ROW = 3,      /* No unwinder found the caller. */
  WINDLASS_END_UNREADABLE = 4,  /* The stack could not be read. */
  WINDLASS_END_LOST = 5,        /* A register that is needed is not known here. */
  WINDLASS_END_NO_PROGRESS = 6, /* The stack pointer does not move. */
  WINDLASS_END_BAD_ROW = 7,     /* Unwind information that contradicts itself. */
  WINDLASS_END_LIMIT = 8,       /* More than windlass_options.max_frames frames. */
  WINDLASS_END_GUESSED = 9,     /* The last frame looks like the outermost, but that frame, or another, is a guess. */
  WINDLASS_END_FOREIGN = 10,    /* Code of another machine. */
  WINDLASS_END_BUDGET = 11,     /* The caller was not found in the time that a walk in a signal handler may take. */
  WINDLASS_END_CHAINED = 12,    /* The outermost frame was reached, in part by a chain of frame pointers alone. */
  WINDLASS_END_STOPPED = 100    /* windlass_walk: the callback stopped the walk. */
};
/* Words for people, for example "cfi", "described" and "complete"; "?" for another number. Static strings. [signal] */
WINDLASS_API const char* windlass_origin_name(uint32_t origin);
WINDLASS_API const char* windlass_certainty_name(uint32_t certainty);
WINDLASS_API const char* windlass_end_name(uint32_t end);

/* How far a walk may go, and by what means. */
typedef struct windlass_options {
  size_t size;
  uint64_t max_frames; /* 0: 65536. */
  uint32_t flags;      /* WINDLASS_NO_CODE_ANALYSIS. */
  uint32_t reserved;
} windlass_options;
#define WINDLASS_NO_CODE_ANALYSIS 1u /* Unwind information, frame pointers and leaves only. */

/* A frame of a walk. */
typedef struct windlass_frame {
  size_t size;
  uint64_t pc;
  uint64_t sp;
  uint64_t lookup; /* The address by which to look up symbols and lines: pc, or pc - 1 for a return address. */
  uint32_t origin; /* WINDLASS_ORIGIN_... */
  uint32_t flags;  /* WINDLASS_RETURN_ADDRESS, WINDLASS_SIGNAL_FRAME. */
  uint64_t index;  /* 0 for the innermost. */
  /* The module or code range that contains `lookup`. If there is none, begin and end are 0 and the path is NULL. lookup
   * - module_bias is the address in the file. */
  uint64_t module_begin;
  uint64_t module_end;
  uint64_t module_bias;
  const char* module_path; /* Valid until the module is removed. */
  uint32_t certainty;      /* WINDLASS_CERTAINTY_... */
  uint32_t reserved;
} windlass_frame;

/* A walk at one of its frames. */
typedef struct windlass_cursor windlass_cursor;

/* Called for each frame. Nonzero stops the walk. `cursor` is at the frame, and must not be stepped. */
typedef int (*windlass_callback)(windlass_cursor* cursor, const windlass_frame* frame, void* user);

/* Calls `callback` for each frame, innermost first. The first frame is `registers`. `options`, `end` (WINDLASS_END_...)
 * and `error` may be NULL. At most max_frames frames.
 *
 * A walk that ends early is still WINDLASS_OK, and `error` says what happened. After a whole stack, `error` is emptied:
 * WINDLASS_OK, no text. Needs up to 40 KiB of stack. [signal] on a space of this process, or with a `read` that is
 * signal-safe. */
WINDLASS_API windlass_status windlass_walk(const windlass_space* space, const windlass_registers* registers,
                                           const windlass_options* options, windlass_callback callback, void* user,
                                           uint32_t* end, windlass_error* error);

/* Steps a frame without a cursor: `registers` become the caller's. WINDLASS_END at the end of the stack; `registers`
 * are then unchanged, and `end` says why. `frame` (may be NULL) receives the new frame; its index is 1. Only this step
 * checks that the stack moves. [signal] as windlass_walk. */
WINDLASS_API windlass_status windlass_step_registers(const windlass_space* space, windlass_registers* registers,
                                                     windlass_frame* frame, uint32_t* end, windlass_error* error);

/* Bytes and alignment of a cursor's memory; constant while the library is loaded. [signal] */
WINDLASS_API size_t windlass_cursor_size(void);
#define WINDLASS_CURSOR_ALIGNMENT 16

/* Makes a cursor in memory of the caller: for example a static buffer, the stack, or a pool. `registers` are copied.
 * [signal] */
WINDLASS_API windlass_status windlass_cursor_init(void* storage, size_t storage_size, const windlass_space* space,
                                                  const windlass_registers* registers, const windlass_options* options,
                                                  windlass_cursor** cursor, windlass_error* error);
/* Ends a cursor. Each cursor must be ended before its memory goes. [signal] */
WINDLASS_API windlass_status windlass_cursor_end(windlass_cursor* cursor);
/* Goes to the caller. WINDLASS_END if there is none; the cursor then stays at the last frame. [signal] as
 * windlass_walk. */
WINDLASS_API windlass_status windlass_step(windlass_cursor* cursor, windlass_error* error);
/* Why the walk ended. WINDLASS_END_RUNNING until windlass_step has returned WINDLASS_END. [signal] */
WINDLASS_API windlass_status windlass_end_reason(const windlass_cursor* cursor, uint32_t* end);

/* The frame that the cursor is at, its registers, and a register's value. [signal] */
WINDLASS_API windlass_status windlass_cursor_frame(const windlass_cursor* cursor, windlass_frame* frame);
WINDLASS_API windlass_status windlass_cursor_registers(const windlass_cursor* cursor, windlass_registers* registers);
WINDLASS_API windlass_status windlass_cursor_get(const windlass_cursor* cursor, uint32_t number, uint64_t* value);
/* The address where a callee saved the register. To write there changes the register for this frame, once its callees
 * have returned.
 *
 * *address is 0 if the value is still in the register itself. The value of windlass_cursor_get is then live in the
 * thread. WINDLASS_NOT_FOUND: not known. sp has no place, since it is computed. [signal] */
WINDLASS_API windlass_status windlass_saved_at(const windlass_cursor* cursor, uint32_t number, uint64_t* address);

#ifdef __cplusplus
}
#endif

#endif /* WINDLASS_C_WINDLASS_H */
