/* Reading unwind information in C: functions and rows of a file, by one interface for call frame information, SFrame,
 * Windows x64 and ARM64, and Go's table. Conventions as in windlass.h.
 *
 *   windlass_unwind_info* info;
 *   windlass_unwind_row row;
 *   row.size = sizeof row;
 *   windlass_open_unwind_info("/bin/true", &info, NULL);
 *   windlass_row_at(info, address, &row, NULL);
 *   windlass_close_unwind_info(info); */
#ifndef WINDLASS_UNWIND_INFO_H
#define WINDLASS_UNWIND_INFO_H

#include "windlass/windlass.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of one file. Addresses are in the file's own numbering: virtual addresses in ELF files, RVAs in PE images. Nothing
 * here is signal-safe; any number of threads may ask one handle. */
typedef struct windlass_unwind_info windlass_unwind_info;

enum {
  WINDLASS_FORMAT_DWARF = 0,
  WINDLASS_FORMAT_WIN_X64 = 1,
  WINDLASS_FORMAT_WIN_ARM64 = 2,
  WINDLASS_FORMAT_SFRAME = 3, /* only where there is no call frame information */
  WINDLASS_FORMAT_GO = 4      /* a Go program's table of its functions */
};

/* An ELF file of x86-64, AArch64 or i386 or a PE32+ image of x64 or ARM64, by its first bytes. The file is mapped, and
 * must not be cut short before the handle is closed. A file without unwind information has no functions. [any] */
WINDLASS_API windlass_status windlass_open_unwind_info(const char* path, windlass_unwind_info** info,
                                                       windlass_error* error);
#define WINDLASS_LOADED_IMAGE 1u /* a PE image as a loader maps it: the byte at an RVA is at that index */
/* The same of bytes in memory, which stay the caller's and must stay as they are until the handle is closed. [any] */
WINDLASS_API windlass_status windlass_read_unwind_info(const void* bytes, size_t length, uint32_t flags,
                                                       windlass_unwind_info** info, windlass_error* error);
/* The handle is invalid after it. Not while another thread uses it. */
WINDLASS_API windlass_status windlass_close_unwind_info(windlass_unwind_info* info);

typedef struct windlass_unwind_file {
  size_t size;
  uint32_t architecture; /* WINDLASS_X86_64, ... */
  uint32_t format;       /* WINDLASS_FORMAT_... */
  uint64_t entry_point;  /* 0: none */
  const char* build_id;  /* "" where there is none; valid until the handle is closed */
} windlass_unwind_file;
WINDLASS_API windlass_status windlass_describe_unwind_info(const windlass_unwind_info* info,
                                                           windlass_unwind_file* file);

/* In windlass_unwind_function.flags. */
#define WINDLASS_ON_EXCEPTION 1u            /* the personality is called when a handler is searched for */
#define WINDLASS_ON_TERMINATION 2u          /* and when frames are unwound */
#define WINDLASS_IS_SIGNAL_FRAME 4u         /* the caller's pc is an interrupted instruction */
#define WINDLASS_INDIRECT_PERSONALITY 8u    /* `personality` is the address of a pointer to it */
#define WINDLASS_INDIRECT_LANGUAGE_DATA 16u /* so is `language_data` */

/* A function, or a part of one that has a record of its own. */
typedef struct windlass_unwind_function {
  size_t size;
  uint64_t begin;
  uint64_t end;           /* one past the last byte */
  uint64_t primary;       /* where the function begins that this is a part of */
  uint64_t personality;   /* 0: none */
  uint64_t language_data; /* 0: none */
  uint32_t flags;
  uint32_t section;       /* the record's: which section of call frame information; UINT32_MAX: .sframe; 0: PE images */
  uint64_t record_offset; /* in that section, or in the function table */
  uint64_t record_address; /* 0: it is not loaded */
} windlass_unwind_function;

/* What is malformed; `problem->where` is an offset in the file or, in PE images, an RVA. */
typedef void (*windlass_problem_callback)(const windlass_error* problem, void* user);
/* Nonzero stops. */
typedef int (*windlass_function_callback)(const windlass_unwind_function* function, void* user);
/* Every function, ascending. `problem` may be NULL. [any] */
WINDLASS_API windlass_status windlass_each_function(const windlass_unwind_info* info,
                                                    windlass_function_callback callback,
                                                    windlass_problem_callback problem, void* user);
/* The one that contains an address. WINDLASS_NOT_FOUND: none does; else what is wrong with its record. [any] */
WINDLASS_API windlass_status windlass_find_function(const windlass_unwind_info* info, uint64_t address,
                                                    windlass_unwind_function* function, windlass_error* error);

/* Where the caller's value of a register is, and what the CFA is. */
enum {
  WINDLASS_RULE_UNDEFINED = 0,        /* it cannot be recovered */
  WINDLASS_RULE_SAME_VALUE = 1,       /* still in the register */
  WINDLASS_RULE_AT_CFA = 2,           /* at CFA + offset */
  WINDLASS_RULE_CFA_VALUE = 3,        /* is CFA + offset */
  WINDLASS_RULE_IN_REGISTER = 4,      /* in `base` */
  WINDLASS_RULE_AT_REGISTER = 5,      /* at base + offset */
  WINDLASS_RULE_REGISTER_VALUE = 6,   /* is base + offset */
  WINDLASS_RULE_AT_EXPRESSION = 7,    /* at what a DWARF expression gives; but for the CFA's, the CFA is pushed first */
  WINDLASS_RULE_EXPRESSION_VALUE = 8, /* is what it gives */
  WINDLASS_RULE_LOADED = 9            /* of the CFA only: [base + offset] + addend */
};
typedef struct windlass_unwind_rule {
  uint16_t number; /* of the register that the rule is about; not for the CFA and the return address */
  uint16_t kind;   /* WINDLASS_RULE_... */
  uint16_t base;
  int16_t addend;
  int32_t offset;
  uint32_t expression_size;
  const void* expression; /* valid until the handle is closed; NULL where there is none */
} windlass_unwind_rule;

#define WINDLASS_MAX_RULES 48
/* In windlass_unwind_row.flags, besides WINDLASS_IS_SIGNAL_FRAME. */
#define WINDLASS_RETURN_SIGNED 8u /* AArch64: the return address carries an authentication code */

/* How to get to the caller from [begin, end). Registers without a rule have the architecture's default: those that
 * calls preserve keep their value, others are lost. */
typedef struct windlass_unwind_row {
  size_t size;
  uint64_t begin;
  uint64_t end;
  uint32_t flags;
  uint32_t rule_count;
  windlass_unwind_rule cfa; /* REGISTER_VALUE, LOADED or EXPRESSION_VALUE */
  windlass_unwind_rule return_address;
  windlass_unwind_rule rules[WINDLASS_MAX_RULES]; /* rule_count of them, ascending by number */
} windlass_unwind_row;

/* Nonzero stops. */
typedef int (*windlass_row_callback)(const windlass_unwind_row* row, void* user);
/* The rows of a function that this handle gave, ascending. What no row can say goes to `problem` (may be NULL) as
 * WINDLASS_UNSUPPORTED. [any] */
WINDLASS_API windlass_status windlass_each_row(const windlass_unwind_info* info,
                                               const windlass_unwind_function* function, windlass_row_callback callback,
                                               windlass_problem_callback problem, void* user);
/* The row in force at an address. Errors as windlass_find_function, and WINDLASS_UNSUPPORTED where no row can say it.
 * [any] */
WINDLASS_API windlass_status windlass_row_at(const windlass_unwind_info* info, uint64_t address,
                                             windlass_unwind_row* row, windlass_error* error);

#ifdef __cplusplus
}
#endif

#endif /* WINDLASS_UNWIND_INFO_H */
