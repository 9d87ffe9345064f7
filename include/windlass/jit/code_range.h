// Code made at run time: the functions and stubs of a JIT, added and retired while other threads walk through them.
//
// For example:
//
//   auto id = add_own_code({.begin = begin, .end = end, .name = "[my runtime]", .rows = rows});
//   // From here on, walks of this process use the range.
//
//   retire_own_code(*id);   // Before other code is written there.
//
// For code of other processes and of dumps, see AddressSpace::add() in walk.h. For many functions at a time, see
// jit/code_manager.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "windlass/error.h"
#include "windlass/frame_row.h"

namespace windlass {

// A function table of Windows x64, and the unwind information that it refers to. For example, of a heap's front
// (jit/code_heap.h):
//
//   add_own_code({.begin = front->code, .end = heap_end,
//                 .function_table = {.bytes = front->bytes, .address = heap, .table = front->table,
//                                    .entries = front->entries}});
struct FunctionTable {
  std::vector<std::byte> bytes = {};  // All of it. Copied.
  std::uint64_t address = 0;          // Of the bytes in the process.
  std::uint64_t base = 0;             // RVAs count from here, at or before `address`. 0: `address`.
  std::uint32_t table = 0;            // The offset of the table in `bytes`.
  std::uint32_t entries = 0;          // Of 12 bytes each, in any order.
};

// A range of code. At an address that the range's unwind information does not cover, the instructions are followed.
struct CodeRange {
  std::uint64_t begin = 0;  // The first address.
  std::uint64_t end = 0;    // The address behind the last.
  // The name that frames show as ModuleInfo::path.
  std::string name = "[jit]";
  // Only kept, for ModuleInfo::bias.
  std::uint64_t bias = 0;

  // The unwind information: rows, or .eh_frame, or a function table, or nothing. The library copies all, with
  // expressions.
  //
  // These are the rows, at addresses of the process: ascending, disjoint, within the range.
  std::vector<FrameRow> rows = {};
  // A section .eh_frame, read at once. Its FDEs lie within the range. Its pointers count from `eh_frame_address`: the
  // address of the section in the process. If all pointers are absolute, any address will do.
  std::vector<std::byte> eh_frame = {};
  std::uint64_t eh_frame_address = 0;
  // Windows x64. Its functions lie within the range. Epilogues are known by the code, which is read during each walk.
  // So the code may change.
  FunctionTable function_table = {};
};

// Names an added range. A number is never given twice in a process, not even in another space.
enum class CodeRangeId : std::uint64_t { kNone = 0 };

// Adds a range of the own process's code. Call before the code runs. Every walk of this process that begins later sees
// the range: backtrace(), and walkers on own_process() or AddressSpace::self(), on any thread.
//
// kMalformed:
// - An empty range.
// - A range that overlaps another range (`where`: where that begins) or the code of a loaded module.
// - Rows that are not ascending, or not in the range.
// - Two kinds of unwind information.
// - A function table with a damaged record. `where` is the RVA.
//
// An error in .eh_frame has its offset as `where`.
//
// Thread-safe. Locks and allocates, so not for signal handlers; but a signal handler that interrupts this function may
// walk. Takes the time to evaluate .eh_frame, and some 3 microseconds with 10,000 ranges. A look-up is logarithmic.
[[nodiscard]] Expected<CodeRangeId> add_own_code(CodeRange range);

// Retires a range: no walk that begins later sees it. Call when the code runs no more, and before other code is written
// to the same place.
//
// The memory is freed when the last walk that was under way has ended. For example, a StackWalker that is kept alive
// keeps all ranges that are retired during its life. kNotFound for an id that was retired before, and for an id of
// another space. Thread-safe; not for signal handlers.
Expected<void> retire_own_code(CodeRangeId id);

}  // namespace windlass
