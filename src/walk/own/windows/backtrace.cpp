// Backtraces of the own process, on Windows.
#include "windlass/backtrace.h"
#include "walk/own/whole_walk.h"

namespace windlass {
std::size_t backtrace_from(const Registers& registers, std::uint64_t* pcs, std::size_t max, WalkEnd* end) {
  if (max == 0) return 0;
  StackWalker walker(own_process(), registers);
  return walk::whole_walk(walker, pcs, max, end);
}

[[gnu::noinline]] std::size_t backtrace(std::uint64_t* pcs, std::size_t max, unsigned skip) {
  if (max == 0) return 0;
  StackWalker walker(own_process(), capture_registers());
  for (++skip; skip != 0; --skip)  // this function first
    if (!walker.step()) return 0;
  return walk::whole_walk(walker, pcs, max, nullptr);
}

}  // namespace windlass
