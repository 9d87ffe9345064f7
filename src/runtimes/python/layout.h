// The places where a CPython keeps the frames of its threads. Versions 3.9 to 3.12 do not describe themselves, so each
// has a table of the offsets in its headers on 64-bit machines. These offsets stay the same from a minor version's
// first release to its last. 3.13 and later describe themselves
// (_Py_DebugOffsets).
//
// python/cpython, branches 3.9 to 3.14: Include/cpython/pystate.h (PyThreadState, _PyCFrame),
// Include/internal/pycore_debug_offsets.h, pycore_interp.h, pycore_runtime.h, pycore_frame.h (_PyInterpreterFrame),
// Include/cpython/code.h, Include/cpython/frameobject.h, Include/cpython/unicodeobject.h.
#pragma once

#include <cstdint>

#include "windlass/error.h"
#include "windlass/walk.h"
#include "windlass_interpreter_layout.h"

namespace windlass::runtimes::python {

enum class Lines : std::uint8_t { kLnotab, kLinetable, kLocations };  // to 3.9, of 3.10, from 3.11 on

struct Layout {
  wl_interpreter interpreter;  // the threads' frames and what identifies their code
  unsigned minor = 0;          // of the version
  Lines lines = Lines::kLnotab;
  std::uint16_t code_line = 0;                   // in a code object: its first line
  std::uint16_t code_qualname = 0;               // 0: there is none
  std::uint16_t ascii_begin = 0;                 // in a string: its text, if that is ASCII,
  std::uint16_t compact_begin = 0;               // and if it is not
  std::uint64_t count_flags = 0;                 // in an object's count of references: bits that do not count
  std::uint64_t code_type = 0, string_type = 0;  // addresses
};

// Of the image at `base`, whose _PyRuntime is at `runtime`. kUnsupported: another version, or one without what is
// needed; kUnreadable.
[[nodiscard]] Expected<Layout> read_layout(const Memory& memory, std::uint64_t base, std::uint64_t runtime);

}  // namespace windlass::runtimes::python
