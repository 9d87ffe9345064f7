// Backtraces of the own process.
#include "windlass/backtrace.h"

namespace windlass {

std::size_t backtrace_from(const Registers& registers, std::uint64_t* pcs, std::size_t max, WalkEnd* end) {
  if (max == 0) return 0;
  StackWalker walker(own_process(), registers, WalkOptions{max});
  std::size_t depth = 0;
  do pcs[depth++] = walker.frame().pc().value();
  while (depth < max && walker.step());
  if (end != nullptr) *end = walker.end_reason();
  return depth;
}

[[gnu::noinline]] std::size_t backtrace(std::uint64_t* pcs, std::size_t max, unsigned skip) {
  StackWalker walker(own_process(), capture_registers());
  for (unsigned i = 0; i <= skip; ++i)
    if (!walker.step()) return 0;
  return backtrace_from(walker.frame().registers, pcs, max);
}

void prepare() {}

}  // namespace windlass
