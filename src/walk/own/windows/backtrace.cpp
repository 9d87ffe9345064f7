// Backtraces of the own process, on Windows.
#include "windlass/backtrace.h"

namespace windlass {
namespace {

std::size_t walk_on(StackWalker& walker, std::uint64_t* pcs, std::size_t max, WalkEnd* end) {
  std::size_t depth = 0;
  do pcs[depth++] = walker.frame().pc().value();
  while (depth < max && walker.step());
  if (end != nullptr) *end = depth == max ? WalkEnd::kLimit : walker.end_reason();
  return depth;
}

}  // namespace

std::size_t backtrace_from(const Registers& registers, std::uint64_t* pcs, std::size_t max, WalkEnd* end) {
  if (max == 0) return 0;
  StackWalker walker(own_process(), registers);
  return walk_on(walker, pcs, max, end);
}

[[gnu::noinline]] std::size_t backtrace(std::uint64_t* pcs, std::size_t max, unsigned skip) {
  if (max == 0) return 0;
  StackWalker walker(own_process(), capture_registers());
  for (++skip; skip != 0; --skip)  // this function first
    if (!walker.step()) return 0;
  return walk_on(walker, pcs, max, nullptr);
}

}  // namespace windlass
