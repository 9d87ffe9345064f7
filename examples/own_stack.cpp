// The own stack, in C++: every frame with its function and who found it.
#include <dlfcn.h>
#include <windlass/backtrace.h>

#include <cstdio>

[[gnu::noinline]] void inner() {
  windlass::StackWalker walker(windlass::own_process(), windlass::capture_registers());
  for (const windlass::Frame& frame : walker) {
    Dl_info symbol{};
    dladdr(reinterpret_cast<void*>(frame.pc().lookup()), &symbol);
    std::printf("%#lx %s (%s)\n", frame.pc().value(), symbol.dli_sname != nullptr ? symbol.dli_sname : "?",
                origin_name(frame.origin).data());
  }
  if (walker.end_reason() != windlass::WalkEnd::kComplete) std::puts(walker.error().text().c_str());
}

[[gnu::noinline]] void outer() {
  inner();
  std::uint64_t pcs[64];
  std::printf("%zu return addresses\n", windlass::backtrace(pcs, 64));  // no more than the pcs, and fast
}

int main() { outer(); }
