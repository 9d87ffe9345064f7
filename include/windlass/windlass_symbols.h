/* Windlass, names of code addresses, the C interface: functions, the calls inlined into them, source files and lines.
 * In libwindlass-symbols.so, which needs libdw; it stands alone, and beside libwindlass.so. C99 and C++.
 *
 *   windlass_symbols* symbols = NULL;
 *   if (windlass_symbols_open_process(pid, NULL, &symbols, &error) != WINDLASS_OK) ...
 *   windlass_symbols_name(symbols, addresses, count, 0, each_address, NULL, NULL);
 *   windlass_symbols_close(symbols);
 *
 * What is named and by what, what is kept, and what an address costs: windlass/symbols.h. The conventions of windlass.h
 * hold here; of its marks, these functions are [any] unless they say [setup], and none is [signal]. Strings are
 * NUL-terminated UTF-8 as far as the files have it, and live until the handle is closed. */
#ifndef WINDLASS_SYMBOLS_H
#define WINDLASS_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

#include "windlass/windlass.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct windlass_symbols windlass_symbols;

#define WINDLASS_SYMBOLS_NO_LINES 1u /* symbol tables only: no inlined calls, files and lines */

typedef struct windlass_symbols_options {
  size_t size;
  uint32_t flags;              /* WINDLASS_SYMBOLS_NO_LINES */
  uint32_t threads;            /* modules that one call reads at a time; 0: one a CPU */
  const char* debug_directory; /* searched for .build-id/xx/yyyy.debug before /usr/lib/debug; may be NULL */
} windlass_symbols_options;

/* `options` and `error` may be NULL.
 * A file, ELF or PE: addresses as it numbers them. WINDLASS_SYSTEM, WINDLASS_UNSUPPORTED, WINDLASS_MALFORMED. */
WINDLASS_API windlass_status windlass_symbols_open_file(const char* path, const windlass_symbols_options* options,
                                                        windlass_symbols** symbols, windlass_error* error);
/* A process of this machine, which is not stopped. WINDLASS_SYSTEM where there is none or it may not be looked at. */
WINDLASS_API windlass_status windlass_symbols_open_process(int64_t pid, const windlass_symbols_options* options,
                                                           windlass_symbols** symbols, windlass_error* error);
/* This process. */
WINDLASS_API windlass_status windlass_symbols_open_self(const windlass_symbols_options* options,
                                                        windlass_symbols** symbols, windlass_error* error);
/* A dump: addresses as in the space that windlass_open_core or windlass_open_minidump opens. `files` may be NULL. */
WINDLASS_API windlass_status windlass_symbols_open_core(const char* path, const windlass_files* files,
                                                        const windlass_symbols_options* options,
                                                        windlass_symbols** symbols, windlass_error* error);
WINDLASS_API windlass_status windlass_symbols_open_minidump(const char* path, const windlass_files* files,
                                                            const windlass_symbols_options* options,
                                                            windlass_symbols** symbols, windlass_error* error);
/* No modules at first: for spaces that were opened by windlass_open_callbacks. */
WINDLASS_API windlass_status windlass_symbols_open_empty(const windlass_symbols_options* options,
                                                         windlass_symbols** symbols, windlass_error* error);
/* The module of a handle that was opened empty. Its file is trusted to be the one that is mapped; `image` must be NULL.
 * WINDLASS_INVALID on other handles, WINDLASS_MALFORMED for an empty range or one that overlaps another. [setup] */
WINDLASS_API windlass_status windlass_symbols_add_module(windlass_symbols* symbols, const windlass_module* module,
                                                         windlass_error* error);
/* Frees what it read, the strings too. [setup] */
WINDLASS_API windlass_status windlass_symbols_close(windlass_symbols* symbols);

#define WINDLASS_FRAME_INLINED 1u /* its code is part of the next function's */

/* A function at an address, and the place in its source. */
typedef struct windlass_source_frame {
  size_t size;
  const char* function;     /* readable */
  const char* linkage_name; /* as in the symbol table */
  const char* file;         /* NULL: not known */
  uint32_t line;            /* from 1; 0: not known */
  uint32_t flags;           /* WINDLASS_FRAME_INLINED */
} windlass_source_frame;

/* What is known of one address. */
typedef struct windlass_named_address {
  size_t size;
  uint64_t lookup;         /* what was looked up: pc, or pc - 1 where it is a return address */
  const char* module;      /* its path as the process knows it; NULL: the address is in nothing */
  uint64_t offset;         /* `lookup` as the module numbers it */
  uint64_t function_begin; /* numbered likewise; 0: not known */
  /* The innermost inlined call first, last the function that has a frame on the stack; none: it has no name. Valid
   * during the call of the callback. */
  const windlass_source_frame* const* frames;
  size_t frame_count;
} windlass_named_address;

/* `index` is the address's among those given. Nonzero ends the call. */
typedef int (*windlass_symbols_callback)(const windlass_named_address* named, size_t index, void* user);

/* Calls `callback` for each address in turn, on the calling thread. An address without a name is no error. All of them
 * are looked up first, modules in parallel: one call for many is far cheaper than many for one. `flags`:
 * WINDLASS_RETURN_ADDRESS, of all of them. WINDLASS_NO_MEMORY. */
WINDLASS_API windlass_status windlass_symbols_name(const windlass_symbols* symbols, const uint64_t* addresses,
                                                   size_t count, uint32_t flags, windlass_symbols_callback callback,
                                                   void* user, windlass_error* error);
/* The same for walked frames: each knows whether its pc is a return address. `size` of the first holds for all. */
WINDLASS_API windlass_status windlass_symbols_name_frames(const windlass_symbols* symbols, const windlass_frame* frames,
                                                          size_t count, windlass_symbols_callback callback, void* user,
                                                          windlass_error* error);

#ifdef __cplusplus
}
#endif

#endif /* WINDLASS_SYMBOLS_H */
