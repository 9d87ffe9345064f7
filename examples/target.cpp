// Every thread of another process, a core file or a minidump, in C++.
#include <windlass/target.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto target = windlass::open_target(argv[1]);
  if (!target) {
    std::fprintf(stderr, "%s: %s\n", argv[1], target.error().text().c_str());
    return 1;
  }
  for (const windlass::Thread& thread : target->threads) {
    std::printf("thread %lu %s%s\n", thread.id, thread.name.c_str(), thread.faulted ? " (crashed)" : "");
    windlass::StackWalker walker(target->space, thread.registers);
    for (const windlass::Frame& frame : walker)
      std::printf("  %#018lx %s\n", frame.pc().value(), frame.module != nullptr ? frame.module->path.c_str() : "?");
    if (walker.end_reason() != windlass::WalkEnd::kComplete) std::printf("  [%s]\n", walker.error().text().c_str());
  }
}
