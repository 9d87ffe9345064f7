#include "runtimes/python/layout.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtimes/dynamic_symbol.h"
#include "runtimes/memory_reader.h"
#include "runtimes/needed.h"

namespace windlass::runtimes::python {
namespace {

// What all these versions have in common.
wl_interpreter cpython() {
  wl_interpreter interpreter{};
  interpreter.kind = WL_CPYTHON;
  wl_python& list = interpreter.python;
  list.next_thread = 8;
  list.code_name = 120;
  list.code_file = 112;
  list.code_lines = 136;
  list.string_hash = 24;
  list.bytes_size = 16;
  list.bytes_begin = 32;
  list.skipped_word = WL_CODE_WORDS;
  return interpreter;
}

// PyFrameObject, on the heap, each of an activation of its own. The words of the code object are its first sixteen, of
// which the reference count changes.
Layout of_3_9_and_3_10(unsigned minor) {
  Layout layout{.interpreter = cpython(), .minor = minor};
  wl_python& list = layout.interpreter.python;
  list.interpreters = 32;
  list.threads = 8;
  list.thread_id = 176;
  list.current = 24;
  list.frame_size = 112;
  list.frame_code = 32;
  list.frame_previous = 24;
  list.frame_place = minor == 9 ? 104 : 96;
  list.activations = WL_ACTIVATION_EACH;
  list.code_words = 0;
  list.skipped_word = 0;
  list.code_name = 112;
  list.code_file = 104;
  list.code_lines = 120;
  layout.lines = minor == 9 ? Lines::kLnotab : Lines::kLinetable;
  layout.code_line = 40;
  layout.ascii_begin = 48;
  layout.compact_begin = 72;
  return layout;
}

// _PyInterpreterFrame, on a stack of the thread's own. The words of the code object are those from its size to its
// table of lines, of which the warm-up counter changes.
Layout of_3_11() {
  Layout layout{.interpreter = cpython(), .minor = 11, .lines = Lines::kLocations};
  wl_python& list = layout.interpreter.python;
  list.interpreters = 40;
  list.threads = 16;
  list.thread_id = 152;
  list.current = 56;
  list.has_c_frame = 1;
  list.c_frame_current = 8;
  list.frame_size = 72;
  list.frame_code = 32;
  list.frame_previous = 48;
  list.frame_place = 56;
  list.frame_mark = 68;  // is_entry
  list.activations = WL_ACTIVATION_ENTRY;
  list.code_begin = 184;
  list.code_words = 16;
  list.skipped_word = 4;
  layout.code_line = 72;
  layout.code_qualname = 128;
  layout.ascii_begin = 48;
  layout.compact_begin = 72;
  return layout;
}

Layout of_3_12() {
  Layout layout{.interpreter = cpython(), .minor = 12, .lines = Lines::kLocations};
  wl_python& list = layout.interpreter.python;
  list.interpreters = 40;
  list.threads = 72;
  list.thread_id = 136;
  list.current = 56;
  list.has_c_frame = 1;
  list.c_frame_current = 0;
  list.frame_size = 72;
  list.frame_code = 0;
  list.frame_previous = 8;
  list.frame_place = 56;
  list.frame_mark = 70;  // owner
  list.activations = WL_ACTIVATION_SHIM;
  list.code_begin = 192;
  list.code_version = 92;
  layout.code_line = 68;
  layout.code_qualname = 128;
  layout.ascii_begin = 40;
  layout.compact_begin = 56;
  return layout;
}

// _Py_DebugOffsets of 3.13 and later, from the first byte of _PyRuntime on: numbers of 64 bits each, in sections. The
// sections grow at their ends, so that what is read of them stays, and where they begin does not.
struct DebugOffsets {
  char cookie[8];
  std::uint64_t version, free_threaded;
  struct {
    std::uint64_t size, finalizing, interpreters_head;
  } runtime_state;
  struct {
    std::uint64_t size, id, next, threads_head;
  } interpreter_state;
};
struct ThreadStateOffsets {
  std::uint64_t size, prev, next, interp, current_frame, thread_id;
};
struct FrameOffsets {
  std::uint64_t size, previous, executable, instr_ptr, localsplus, owner;
};
struct CodeOffsets {
  std::uint64_t size, filename, name, qualname, linetable, firstlineno, argcount, localsplusnames, localspluskinds,
      co_code_adaptive;
};

struct Described {
  unsigned minor;
  std::uint32_t first;                                  // the first release whose description is this, PY_VERSION_HEX
  std::uint32_t thread_state, interpreter_frame, code;  // the sections' first numbers
  std::uint64_t count_flags;                            // Layout::count_flags
};
constexpr std::array kDescribed = {Described{13, 0x030d0000, 19, 28, 34, 0},
                                   Described{14, 0x030e00c1, 22, 31, 39, std::uint64_t{0xffff} << 48}};

// Numbers that a field of the list has room for.
class Offsets : public Needed {
 public:
  template <typename To>
  void take(std::uint64_t offset, To& to) {
    to = static_cast<To>(offset);
    if (to != offset) note(Error{ErrorCode::kUnsupported, "an offset that CPython says is too large", 0, offset});
  }
};

Expected<Layout> of_debug_offsets(const Memory& memory, std::uint64_t runtime, const Described& by) {
  const auto said = read_value<DebugOffsets>(memory, runtime);
  const auto thread_state = read_value<ThreadStateOffsets>(memory, runtime + 8 * std::uint64_t{by.thread_state});
  const auto frame = read_value<FrameOffsets>(memory, runtime + 8 * std::uint64_t{by.interpreter_frame});
  const auto code = read_value<CodeOffsets>(memory, runtime + 8 * std::uint64_t{by.code});
  if (!said || !thread_state || !frame || !code)
    return fail(ErrorCode::kUnreadable, "what CPython says of itself cannot be read", runtime);
  if (std::memcmp(said->cookie, "xdebugpy", sizeof said->cookie) != 0 || said->version >> 16 != by.first >> 16 ||
      said->version < by.first)
    return fail(ErrorCode::kUnsupported, "CPython's description of itself is of another version", runtime,
                said->version);
  if (said->free_threaded != 0) return fail(ErrorCode::kUnsupported, "CPython without its lock", runtime);
  Layout layout{.interpreter = cpython(), .minor = by.minor, .lines = Lines::kLocations};
  layout.count_flags = by.count_flags;
  wl_python& list = layout.interpreter.python;
  Offsets offsets;
  list.interpreters = said->runtime_state.interpreters_head;
  offsets.take(said->interpreter_state.next, list.next_interpreter);
  offsets.take(said->interpreter_state.threads_head, list.threads);
  offsets.take(thread_state->next, list.next_thread);
  offsets.take(thread_state->thread_id, list.thread_id);
  offsets.take(thread_state->current_frame, list.current);
  offsets.take(frame->executable, list.frame_code);
  offsets.take(frame->previous, list.frame_previous);
  offsets.take(frame->instr_ptr, list.frame_place);
  offsets.take(frame->owner, list.frame_mark);
  offsets.take(frame->localsplus, list.frame_size);
  offsets.take(code->co_code_adaptive, list.code_begin);
  offsets.take(code->localsplusnames - 4, list.code_version);  // co_version stands before it
  offsets.take(code->name, list.code_name);
  offsets.take(code->filename, list.code_file);
  offsets.take(code->linetable, list.code_lines);
  offsets.take(code->firstlineno, layout.code_line);
  offsets.take(code->qualname, layout.code_qualname);
  list.activations = WL_ACTIVATION_SHIM;
  layout.ascii_begin = 40;
  layout.compact_begin = 56;
  const auto in_frame = [&](unsigned offset, unsigned size) {
    return offset % size == 0 && offset + size <= list.frame_size;
  };
  if (list.frame_size > WL_INTERPRETER_FRAME_BYTES || !in_frame(list.frame_code, 8) ||
      !in_frame(list.frame_previous, 8) || !in_frame(list.frame_place, 8) || !in_frame(list.frame_mark, 1))
    return fail(ErrorCode::kUnsupported, "a frame as CPython describes it is none", runtime, list.frame_size);
  if (offsets.error()) return Failure(*offsets.error());
  return layout;
}

// The minor version of a Python 3. From 3.11 on the version is exported. Before, it is known by symbols that are new in
// each version (What's New in Python 3.9, 3.10, "C API Changes").
Expected<unsigned> minor_version(const Memory& memory, std::uint64_t base) {
  if (const auto at = find_dynamic_symbol(memory, base, "Py_Version")) {
    const auto version = read_value<std::uint64_t>(memory, *at);
    if (!version) return fail(ErrorCode::kUnreadable, "CPython's version cannot be read", *at);
    if (*version >> 24 != 3) return fail(ErrorCode::kUnsupported, "another CPython than 3.9 to 3.14", *at, *version);
    return static_cast<unsigned>(*version >> 16 & 0xff);
  }
  if (find_dynamic_symbol(memory, base, "PyIter_Send")) return 10;
  if (find_dynamic_symbol(memory, base, "PyObject_CallNoArgs")) return 9;
  return fail(ErrorCode::kUnsupported, "a CPython before 3.9", base);
}

Expected<Layout> of_version(const Memory& memory, std::uint64_t base, std::uint64_t runtime) {
  const auto minor = minor_version(memory, base);
  if (!minor) return Failure(minor.error());
  const auto described = std::ranges::find(kDescribed, *minor, &Described::minor);
  if (described != kDescribed.end()) return of_debug_offsets(memory, runtime, *described);
  switch (*minor) {
    case 9:
    case 10: return of_3_9_and_3_10(*minor);
    case 11: return of_3_11();
    case 12: return of_3_12();
    default: break;
  }
  return fail(ErrorCode::kUnsupported, "another CPython than 3.9 to 3.14", base, *minor);
}

}  // namespace

Expected<Layout> read_layout(const Memory& memory, std::uint64_t base, std::uint64_t runtime) {
  auto layout = of_version(memory, base, runtime);
  if (!layout) return layout;
  layout->interpreter.python.interpreters += runtime;
  const auto code_type = find_dynamic_symbol(memory, base, "PyCode_Type");
  const auto string_type = find_dynamic_symbol(memory, base, "PyUnicode_Type");
  if (!code_type || !string_type) return fail(ErrorCode::kUnsupported, "a CPython that exports no types", base);
  layout->code_type = *code_type;
  layout->string_type = *string_type;
  return layout;
}

}  // namespace windlass::runtimes::python
