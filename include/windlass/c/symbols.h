/* Windlass, names of code addresses, the C interface: functions, the calls inlined into them, source files and lines.
 * In libwindlass-symbols.so, which needs libdw. It works alone, and beside libwindlass.so. C99 and C++.
 *
 * For example, to name addresses of a process:
 *
 *   windlass_symbols* symbols = NULL;
 *   if (windlass_symbols_open_process(pid, NULL, &symbols, &error) != WINDLASS_OK) ...
 *
 *   windlass_symbols_name(symbols, addresses, count, 0, each_address, NULL, NULL);
 *   windlass_symbols_close(symbols);
 *
 * windlass/symbols.h says where names come from, which files are kept, and how long a look-up takes. The conventions of
 * c/windlass.h hold here. Functions are [any] unless marked [setup]; none is [signal]. Strings are NUL-terminated,
 * UTF-8 if the files are, and valid until the handle is closed. */
#ifndef WINDLASS_C_SYMBOLS_H
#define WINDLASS_C_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

#include "windlass/c/windlass.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Names the code of a process, dump or file. */
typedef struct windlass_symbols windlass_symbols;

#define WINDLASS_SYMBOLS_NO_LINES 1u /* Symbol tables only: no inlined calls, files and lines. */

/* Options of a handle. */
typedef struct windlass_symbols_options {
  size_t size;
  uint32_t flags;               /* WINDLASS_SYMBOLS_NO_LINES. */
  uint32_t threads;             /* Modules that a call reads at a time; 0: one a CPU. */
  const char* debug_directory;  /* Searched for .build-id/xx/yyyy.debug before /usr/lib/debug; may be NULL. */
  const char* symbol_path;      /* Folders of PDB files, as in _NT_SYMBOL_PATH; NULL: that variable. */
  const char* const* pdb_files; /* PDB files of Windows images, ended by NULL; may be NULL. */
} windlass_symbols_options;

/* Opens a file, ELF or PE. Addresses are as in the file. WINDLASS_SYSTEM, WINDLASS_UNSUPPORTED, WINDLASS_MALFORMED.
 * Here and below, `options` and `error` may be NULL. */
WINDLASS_API windlass_status windlass_symbols_open_file(const char* path, const windlass_symbols_options* options,
                                                        windlass_symbols** symbols, windlass_error* error);
/* Opens a process of this machine, which is not stopped. WINDLASS_SYSTEM if there is none, or the caller may not
 * inspect it. */
WINDLASS_API windlass_status windlass_symbols_open_process(int64_t pid, const windlass_symbols_options* options,
                                                           windlass_symbols** symbols, windlass_error* error);
/* Opens this process. */
WINDLASS_API windlass_status windlass_symbols_open_self(const windlass_symbols_options* options,
                                                        windlass_symbols** symbols, windlass_error* error);
/* Opens a dump. Addresses are as in the space of windlass_open_core or windlass_open_minidump. `files` may be NULL. */
WINDLASS_API windlass_status windlass_symbols_open_core(const char* path, const windlass_files* files,
                                                        const windlass_symbols_options* options,
                                                        windlass_symbols** symbols, windlass_error* error);
WINDLASS_API windlass_status windlass_symbols_open_minidump(const char* path, const windlass_files* files,
                                                            const windlass_symbols_options* options,
                                                            windlass_symbols** symbols, windlass_error* error);
/* Opens a handle without modules: for spaces of windlass_open_callbacks. */
WINDLASS_API windlass_status windlass_symbols_open_empty(const windlass_symbols_options* options,
                                                         windlass_symbols** symbols, windlass_error* error);
/* Adds a module to a handle that was opened empty. The module's file is trusted to be the mapped file; `image` must be
 * NULL. WINDLASS_INVALID on other handles. WINDLASS_MALFORMED for an empty range, or a range that overlaps another.
 * [setup] */
WINDLASS_API windlass_status windlass_symbols_add_module(windlass_symbols* symbols, const windlass_module* module,
                                                         windlass_error* error);
/* Closes a handle, and frees all that it read, also the strings. [setup] */
WINDLASS_API windlass_status windlass_symbols_close(windlass_symbols* symbols);

#define WINDLASS_FRAME_INLINED 1u     /* The code is part of the next frame's function. */
#define WINDLASS_FRAME_INTERPRETED 2u /* An interpreter's evaluator runs this function: windlass/c/stack.h only. */

/* A function, and a place in its source. */
typedef struct windlass_source_frame {
  size_t size;
  const char* function;     /* Readable. */
  const char* linkage_name; /* As in the symbol table. */
  const char* file;         /* NULL: not known. */
  uint32_t line;            /* From 1; 0: not known. */
  uint32_t flags;           /* WINDLASS_FRAME_INLINED, WINDLASS_FRAME_INTERPRETED. */
} windlass_source_frame;

/* The names of an address. */
typedef struct windlass_named_address {
  size_t size;
  uint64_t lookup;         /* The address that was looked up: pc, or pc - 1 for a return address. */
  const char* module;      /* The path of the module as the process knows it; NULL: the address is in no module. */
  uint64_t offset;         /* `lookup` in the module's numbering. */
  uint64_t function_begin; /* The same of the function's first byte; 0: not known. */
  /* The innermost inlined call first; last, the function that has a frame on the stack. Empty: no name. Valid during
   * the callback. */
  const windlass_source_frame* const* frames;
  size_t frame_count;
} windlass_named_address;

/* Called for each address. `index` is the address's place among those given. Nonzero ends the call. */
typedef int (*windlass_symbols_callback)(const windlass_named_address* named, size_t index, void* user);

/* Calls `callback` for each address in turn, on the calling thread. An address without a name is no error. `flags`
 * holds for all addresses, for example WINDLASS_RETURN_ADDRESS. All addresses are looked up first, in modules in
 * parallel. So a call for many addresses takes far less time than many calls. WINDLASS_NO_MEMORY. */
WINDLASS_API windlass_status windlass_symbols_name(const windlass_symbols* symbols, const uint64_t* addresses,
                                                   size_t count, uint32_t flags, windlass_symbols_callback callback,
                                                   void* user, windlass_error* error);
/* The same for walked frames, each of which knows if its pc is a return address. `size` of the first holds for all. */
WINDLASS_API windlass_status windlass_symbols_name_frames(const windlass_symbols* symbols, const windlass_frame* frames,
                                                          size_t count, windlass_symbols_callback callback, void* user,
                                                          windlass_error* error);

#ifdef __cplusplus
}
#endif

#endif /* WINDLASS_C_SYMBOLS_H */
