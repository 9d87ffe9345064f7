// The own stack with names, inlined calls, files and lines.
#include <windlass/backtrace.h>
#include <windlass/symbols.h>

#include <cstdio>

static inline __attribute__((always_inline)) void inlined() {
  std::uint64_t pcs[64];
  const std::size_t depth = windlass::backtrace(pcs, 64);
  std::vector<windlass::CodeAddress> addresses;
  for (std::size_t i = 0; i < depth; ++i) addresses.push_back(windlass::CodeAddress::return_address(pcs[i]));

  const windlass::Symbolizer symbols = windlass::Symbolizer::of_self();
  for (const windlass::NamedAddress& at : symbols.name(addresses)) {
    if (at.frames.empty()) std::printf("%s+%#lx\n", at.module.data(), at.offset);
    for (const windlass::SourceFrame& frame : at.frames) {
      std::printf("%s%s", frame.function.data(), frame.inlined ? " (inlined)" : "");
      if (frame.line != 0) std::printf(" at %s:%u", frame.file.data(), frame.line);
      std::printf("\n");
    }
  }
}

extern "C" __attribute__((noinline)) void outer() {
  inlined();
  asm volatile("");
}

int main() {
  outer();
  return 0;
}
