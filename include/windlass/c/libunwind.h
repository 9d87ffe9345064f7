/* A stand-in for nongnu libunwind's <libunwind.h>: local use (UNW_LOCAL_ONLY), x86-64. Names, values, sizes and
 * symbols are the same. So sources compile with it. Binaries linked to libunwind.so.8 run on libwindlass-unwind.so by
 * LD_PRELOAD. Needs C99 or C++11.
 *
 * For example:
 *
 *   unw_getcontext(&context);
 *   unw_init_local(&cursor, &context);
 *   while (unw_step(&cursor) > 0) unw_get_reg(&cursor, UNW_REG_IP, &pc);
 *
 * Every function but unw_get_proc_name may be called in a signal handler. That function opens and maps the module's
 * file. Cursors are plain memory and may be copied. A context is valid no longer than the frame it was taken in, a
 * cursor no longer than the stack it walks.
 *
 * Differences from libunwind:
 * - In callers, registers that calls do not preserve are -UNW_EBADREG. libunwind gives their last value.
 * - A symbol names a function only if it covers the pc. The nearest symbol before is never used.
 * - unw_resume (-UNW_EINVAL) and floating-point registers (-UNW_EBADREG) are not offered.
 * - Cursors of libunwind's own (unw_init_remote) are passed on to libunwind. */
#ifndef WINDLASS_C_LIBUNWIND_H
#define WINDLASS_C_LIBUNWIND_H

#if !defined(__x86_64__)
#error "windlass/c/libunwind.h: x86-64 only; windlass/c/windlass.h is for every architecture"
#endif

#include <inttypes.h>
#include <stddef.h>
#include <ucontext.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UNW_TARGET x86_64
#define UNW_TARGET_X86_64 1
#define UNW_VERSION_MAJOR 1
#define UNW_VERSION_MINOR 6
#define UNW_VERSION_EXTRA 2
#define UNW_VERSION_CODE(major, minor) (((major) << 16) | (minor))
#define UNW_VERSION UNW_VERSION_CODE(UNW_VERSION_MAJOR, UNW_VERSION_MINOR)

typedef uint64_t unw_word_t;
typedef int64_t unw_sword_t;
typedef int unw_regnum_t;
typedef long double unw_fpreg_t;
typedef ucontext_t unw_context_t;
typedef struct unw_cursor {
  unw_word_t opaque[127];
} unw_cursor_t;

/* Functions return these values negated. */
typedef enum {
  UNW_ESUCCESS = 0,
  UNW_EUNSPEC,
  UNW_ENOMEM,
  UNW_EBADREG,
  UNW_EREADONLYREG,
  UNW_ESTOPUNWIND,
  UNW_EINVALIDIP,
  UNW_EBADFRAME,
  UNW_EINVAL,
  UNW_EBADVERSION,
  UNW_ENOINFO
} unw_error_t;

/* Registers, by DWARF number. */
enum {
  UNW_X86_64_RAX,
  UNW_X86_64_RDX,
  UNW_X86_64_RCX,
  UNW_X86_64_RBX,
  UNW_X86_64_RSI,
  UNW_X86_64_RDI,
  UNW_X86_64_RBP,
  UNW_X86_64_RSP,
  UNW_X86_64_R8,
  UNW_X86_64_R9,
  UNW_X86_64_R10,
  UNW_X86_64_R11,
  UNW_X86_64_R12,
  UNW_X86_64_R13,
  UNW_X86_64_R14,
  UNW_X86_64_R15,
  UNW_X86_64_RIP,
  UNW_X86_64_CFA, /* Read only: the stack pointer within the frame. */
  UNW_REG_IP = UNW_X86_64_RIP,
  UNW_REG_SP = UNW_X86_64_RSP,
  UNW_REG_EH = UNW_X86_64_RAX,
  UNW_REG_LAST = UNW_X86_64_RIP
};

typedef enum { UNW_CACHE_NONE, UNW_CACHE_GLOBAL, UNW_CACHE_PER_THREAD } unw_caching_policy_t;
typedef enum { UNW_INIT_SIGNAL_FRAME = 1 } unw_init_local2_flags_t;

typedef struct unw_addr_space* unw_addr_space_t;

typedef struct unw_proc_info {
  unw_word_t start_ip;
  unw_word_t end_ip;
  unw_word_t lsda;
  unw_word_t handler;
  unw_word_t gp;
  unw_word_t flags;
  int format;
  int unwind_info_size; /* 0: the record is not given out. */
  void* unwind_info;    /* NULL. */
  struct {
    char unused;
  } extra;
} unw_proc_info_t;

typedef enum unw_save_loc_type { UNW_SLT_NONE, UNW_SLT_MEMORY, UNW_SLT_REG } unw_save_loc_type_t;
typedef struct unw_save_loc {
  unw_save_loc_type_t type;
  union {
    unw_word_t addr;
    unw_regnum_t regnum;
  } u;
  struct {
    char unused;
  } extra;
} unw_save_loc_t;

#define unw_getcontext(context) _Ux86_64_getcontext(context)
#define unw_is_fpreg _Ux86_64_is_fpreg
#define unw_regname _Ux86_64_regname
#define unw_strerror _Ux86_64_strerror
#define unw_flush_cache _Ux86_64_flush_cache
#define unw_init_local _ULx86_64_init_local
#define unw_init_local2 _ULx86_64_init_local2
#define unw_step _ULx86_64_step
#define unw_resume _ULx86_64_resume
#define unw_get_reg _ULx86_64_get_reg
#define unw_set_reg _ULx86_64_set_reg
#define unw_get_fpreg _ULx86_64_get_fpreg
#define unw_set_fpreg _ULx86_64_set_fpreg
#define unw_get_save_loc _ULx86_64_get_save_loc
#define unw_is_signal_frame _ULx86_64_is_signal_frame
#define unw_get_proc_info _ULx86_64_get_proc_info
#define unw_get_proc_name _ULx86_64_get_proc_name
#define unw_set_caching_policy _ULx86_64_set_caching_policy
#define unw_set_cache_size _ULx86_64_set_cache_size

/* Captures the registers as they are when this call returns. Returns 0. */
int unw_getcontext(unw_context_t* context);
int unw_is_fpreg(int reg);
const char* unw_regname(unw_regnum_t reg);
const char* unw_strerror(int error);
void unw_flush_cache(unw_addr_space_t space, unw_word_t low, unw_word_t high); /* Nothing to flush. */
int unw_set_caching_policy(unw_addr_space_t space, unw_caching_policy_t policy);
int unw_set_cache_size(unw_addr_space_t space, size_t size, int flag);

/* Begins a walk. The context is from unw_getcontext() or from a signal handler; the library tells which. */
int unw_init_local(unw_cursor_t* cursor, unw_context_t* context);
int unw_init_local2(unw_cursor_t* cursor, unw_context_t* context, int flags);
/* Goes to the caller. Positive: done. 0: there is no caller. Negative: why the caller cannot be found. */
int unw_step(unw_cursor_t* cursor);
int unw_resume(unw_cursor_t* cursor);
int unw_get_reg(unw_cursor_t* cursor, int reg, unw_word_t* value);
int unw_set_reg(unw_cursor_t* cursor, int reg, unw_word_t value);
int unw_get_fpreg(unw_cursor_t* cursor, int reg, unw_fpreg_t* value);
int unw_set_fpreg(unw_cursor_t* cursor, int reg, unw_fpreg_t value);
int unw_get_save_loc(unw_cursor_t* cursor, int reg, unw_save_loc_t* location);
/* Returns 1 in a frame that a signal interrupted. */
int unw_is_signal_frame(unw_cursor_t* cursor);
int unw_get_proc_info(unw_cursor_t* cursor, unw_proc_info_t* info);
/* Gets the symbol's name as the module's file has it. -UNW_ENOMEM if the name was cut to `size`. */
int unw_get_proc_name(unw_cursor_t* cursor, char* name, size_t size, unw_word_t* offset);
/* Writes at most `size` pcs. The first is in the caller of this function. */
int unw_backtrace(void** pcs, int size);

#ifdef __cplusplus
}
#endif

#endif /* WINDLASS_C_LIBUNWIND_H */
