// Code made at run time: a JIT's functions and stubs, added and retired while other threads walk through them.
//
//   auto id = add_own_code({.begin = begin, .end = end, .name = "[my runtime]", .rows = rows});
//   ...                                                  // walks of this process see it from here on
//   retire_own_code(*id);                                // and no longer, before other code comes there
//
// Other processes' and dumps' code: AddressSpace::add and retire in walk.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "windlass/error.h"
#include "windlass/frame_row.h"

namespace windlass {

// One range. Where nothing says how to unwind an address of it, its instructions are followed.
struct CodeRange {
  std::uint64_t begin = 0;  // first address
  std::uint64_t end = 0;    // one past the last
  std::string name = "[jit]";
  std::uint64_t bias = 0;  // only kept: ModuleInfo::bias

  // What is known of its unwinding, in one of two forms. Both are copied, expressions too.
  // Rows at addresses of the process: ascending, disjoint, within the range.
  std::vector<FrameRow> rows = {};
  // A section .eh_frame, read at once: its FDEs lie within the range. Its pointers count from `eh_frame_address`, which
  // is where the section is in the process, or any address if its pointers are absolute.
  std::vector<std::byte> eh_frame = {};
  std::uint64_t eh_frame_address = 0;
};

// Names a range that was added: never given twice in a process, whatever the space.
enum class CodeRangeId : std::uint64_t { kNone = 0 };

// In the own process: seen by every walk of it that begins after this, on whichever thread, by backtrace(), by walkers
// on own_process() and AddressSpace::self(). To be called before the code runs. kMalformed for an empty range, for one
// that overlaps another (`where`: where that begins) or a loaded module's code, for rows that are not sorted or not in
// the range, for both rows and .eh_frame; what is wrong with .eh_frame, with the offset in it.
//
// Thread-safe; takes a lock and memory, so not for signal handlers, though these may interrupt it and walk. Costs the
// evaluation of .eh_frame and some 3 microseconds with 10,000 ranges; a look-up is logarithmic.
[[nodiscard]] Expected<CodeRangeId> add_own_code(CodeRange range);

// No walk that begins after this sees the range. To be called when the code runs no more, and before other code is
// written to its place. What the range holds is freed when the last walk that was under way has ended: a StackWalker
// that is kept keeps all that is retired in its life. kNotFound for an id that was retired before, or is another
// space's. Thread-safe; not for signal handlers.
Expected<void> retire_own_code(CodeRangeId id);

}  // namespace windlass
