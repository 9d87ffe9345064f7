/* Reads unwind information, the C interface: functions and rows of a file, by the same interface for all formats. These
 * are call frame information, SFrame, Windows x64 and ARM64, and Go's table. Conventions as in c/windlass.h.
 *
 * For example, to get the row at an address:
 *
 *   windlass_unwind_info* info;
 *   windlass_unwind_row row;
 *   row.size = sizeof row;
 *
 *   windlass_open_unwind_info("/bin/true", &info, NULL);
 *   windlass_row_at(info, address, &row, NULL);
 *
 *   windlass_close_unwind_info(info); */
#ifndef WINDLASS_C_UNWIND_INFO_H
#define WINDLASS_C_UNWIND_INFO_H

#include "windlass/c/windlass.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The unwind information of a file. Addresses are as in the file: virtual addresses in ELF files, RVAs in PE images.
 * Nothing here is signal-safe. Any number of threads may use a handle. */
typedef struct windlass_unwind_info windlass_unwind_info;

/* The format of a file's unwind information. */
enum {
  WINDLASS_FORMAT_DWARF = 0,
  WINDLASS_FORMAT_WIN_X64 = 1,
  WINDLASS_FORMAT_WIN_ARM64 = 2,
  WINDLASS_FORMAT_SFRAME = 3, /* Only in a file without call frame information. */
  WINDLASS_FORMAT_GO = 4      /* A Go program's table of its functions. */
};

/* Opens an ELF file of x86-64, AArch64 or i386, or a PE32+ image of x64 or ARM64; the first bytes tell which. The file
 * is mapped, and must not be cut short while the handle is open. A file without unwind information has no functions.
 * [any] */
WINDLASS_API windlass_status windlass_open_unwind_info(const char* path, windlass_unwind_info** info,
                                                       windlass_error* error);
#define WINDLASS_LOADED_IMAGE 1u /* A PE image as a loader maps it: the byte at an RVA is at that index. */
/* Opens the unwind information in bytes in memory. They stay the caller's, and must not change while the handle is
 * open. [any] */
WINDLASS_API windlass_status windlass_read_unwind_info(const void* bytes, size_t length, uint32_t flags,
                                                       windlass_unwind_info** info, windlass_error* error);
/* Closes a handle, which is invalid afterwards. Not while another thread uses it. */
WINDLASS_API windlass_status windlass_close_unwind_info(windlass_unwind_info* info);

/* Facts about a file. */
typedef struct windlass_unwind_file {
  size_t size;
  uint32_t architecture; /* WINDLASS_X86_64, ... */
  uint32_t format;       /* WINDLASS_FORMAT_... */
  uint64_t entry_point;  /* 0: none. */
  const char* build_id;  /* "" if there is none; valid until the handle is closed. */
} windlass_unwind_file;
/* Gets the facts about the file. [any] */
WINDLASS_API windlass_status windlass_describe_unwind_info(const windlass_unwind_info* info,
                                                           windlass_unwind_file* file);

/* Bits of windlass_unwind_function.flags. */
#define WINDLASS_ON_EXCEPTION 1u            /* The personality is called in the search for a handler. */
#define WINDLASS_ON_TERMINATION 2u          /* The personality is called when frames are unwound. */
#define WINDLASS_IS_SIGNAL_FRAME 4u         /* The caller's pc is an interrupted instruction. */
#define WINDLASS_INDIRECT_PERSONALITY 8u    /* `personality` is the address of a pointer to it. */
#define WINDLASS_INDIRECT_LANGUAGE_DATA 16u /* `language_data` is the address of a pointer to it. */

/* A function, or a part of a function that has a record of its own. */
typedef struct windlass_unwind_function {
  size_t size;
  uint64_t begin;
  uint64_t end;           /* The byte behind the last. */
  uint64_t primary;       /* Where the whole function begins. */
  uint64_t personality;   /* 0: none. */
  uint64_t language_data; /* 0: none. */
  uint32_t flags;
  uint32_t section;        /* Which section of call frame information holds the record; UINT32_MAX: .sframe; 0: PE
                            * images. */
  uint64_t record_offset;  /* The offset in that section, or in the function table. */
  uint64_t record_address; /* 0: the record is not loaded. */
} windlass_unwind_function;

/* Called for a malformed record. `problem->where` is an offset in the file or, in PE images, an RVA. */
typedef void (*windlass_problem_callback)(const windlass_error* problem, void* user);
/* Called for each function. Nonzero stops. */
typedef int (*windlass_function_callback)(const windlass_unwind_function* function, void* user);
/* Calls `callback` for each function, ascending. `problem` may be NULL. [any] */
WINDLASS_API windlass_status windlass_each_function(const windlass_unwind_info* info,
                                                    windlass_function_callback callback,
                                                    windlass_problem_callback problem, void* user);
/* Finds the function that contains an address. WINDLASS_NOT_FOUND if none does; else the error of its record. [any] */
WINDLASS_API windlass_status windlass_find_function(const windlass_unwind_info* info, uint64_t address,
                                                    windlass_unwind_function* function, windlass_error* error);

/* How to find the caller's value of a register, or the CFA. */
enum {
  WINDLASS_RULE_UNDEFINED = 0,        /* The value cannot be recovered. */
  WINDLASS_RULE_SAME_VALUE = 1,       /* Still in the register. */
  WINDLASS_RULE_AT_CFA = 2,           /* The value is at CFA + offset. */
  WINDLASS_RULE_CFA_VALUE = 3,        /* The value is CFA + offset. */
  WINDLASS_RULE_IN_REGISTER = 4,      /* The value is in register `base`. */
  WINDLASS_RULE_AT_REGISTER = 5,      /* The value is at base + offset. */
  WINDLASS_RULE_REGISTER_VALUE = 6,   /* The value is base + offset. */
  WINDLASS_RULE_AT_EXPRESSION = 7,    /* The value is at the address that a DWARF expression gives. Except for the
                                       * CFA's own, the CFA is pushed first. */
  WINDLASS_RULE_EXPRESSION_VALUE = 8, /* The value is the result of the expression. */
  WINDLASS_RULE_LOADED = 9            /* For the CFA only: [base + offset] + addend. */
};
/* A rule of a row. For example, {6, WINDLASS_RULE_AT_CFA, 0, 0, -16} means that the caller's rbp is at CFA - 16. */
typedef struct windlass_unwind_rule {
  uint16_t number; /* The register of the rule; not used for the CFA and the return address. */
  uint16_t kind;   /* WINDLASS_RULE_... */
  uint16_t base;
  int16_t addend;
  int32_t offset;
  uint32_t expression_size;
  const void* expression; /* Valid until the handle is closed; NULL if there is none. */
} windlass_unwind_rule;

#define WINDLASS_MAX_RULES 48
/* A bit of windlass_unwind_row.flags, besides WINDLASS_IS_SIGNAL_FRAME. */
#define WINDLASS_RETURN_SIGNED 8u /* AArch64: the return address has an authentication code. */

/* How to find the caller from the code in [begin, end). Registers without a rule have the architecture's default: those
 * that calls preserve keep their value, others are lost. */
typedef struct windlass_unwind_row {
  size_t size;
  uint64_t begin;
  uint64_t end;
  uint32_t flags;
  uint32_t rule_count;
  windlass_unwind_rule cfa; /* REGISTER_VALUE, LOADED or EXPRESSION_VALUE. */
  windlass_unwind_rule return_address;
  windlass_unwind_rule rules[WINDLASS_MAX_RULES]; /* rule_count of them, ascending by number. */
} windlass_unwind_row;

/* Called for each row. Nonzero stops. */
typedef int (*windlass_row_callback)(const windlass_unwind_row* row, void* user);
/* Calls `callback` for each row of a function from this handle, ascending. A row of a kind that this struct cannot
 * express goes to `problem` (may be NULL) as WINDLASS_UNSUPPORTED. [any] */
WINDLASS_API windlass_status windlass_each_row(const windlass_unwind_info* info,
                                               const windlass_unwind_function* function, windlass_row_callback callback,
                                               windlass_problem_callback problem, void* user);
/* Gets the row in force at an address. Errors as windlass_find_function. Also WINDLASS_UNSUPPORTED if this struct
 * cannot express the row. [any] */
WINDLASS_API windlass_status windlass_row_at(const windlass_unwind_info* info, uint64_t address,
                                             windlass_unwind_row* row, windlass_error* error);

#ifdef __cplusplus
}
#endif

#endif /* WINDLASS_C_UNWIND_INFO_H */
