// A target whose stack is known: main -> recurse x depth -> spin, over and over. Its functions stand in sections of
// their own, so that their bounds are known. Compiled with -O2 -fomit-frame-pointer.
#include <cstdio>
#include <cstdlib>

extern "C" {
extern const char __start_wl_recurse[], __stop_wl_recurse[], __start_wl_spin[], __stop_wl_spin[];
extern const char __start_wl_main[], __stop_wl_main[];

__attribute__((noinline, section("wl_spin"))) unsigned long spin(unsigned long rounds) {
  unsigned long value = rounds;
  for (unsigned long i = 0; i < rounds; ++i) {
    value = value * 6364136223846793005UL + 1442695040888963407UL;
    asm volatile("" : "+r"(value));
  }
  return value;
}

__attribute__((noinline, section("wl_recurse"))) unsigned long recurse(unsigned depth, unsigned long rounds) {
  if (depth == 0) return spin(rounds) + 1;
  volatile unsigned long locals[3] = {depth, rounds, depth + rounds};
  return recurse(depth - 1, rounds) + locals[depth % 3];
}
}

__attribute__((noinline, section("wl_main"))) int main(int argc, char** argv) {
  const unsigned depth = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 20;
  const unsigned long rounds = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 20000;
  std::printf("%p %p %p %p %p %p\n", static_cast<const void*>(__start_wl_spin),
              static_cast<const void*>(__stop_wl_spin), static_cast<const void*>(__start_wl_recurse),
              static_cast<const void*>(__stop_wl_recurse), static_cast<const void*>(__start_wl_main),
              static_cast<const void*>(__stop_wl_main));
  std::fflush(stdout);
  unsigned long sum = 0;
  for (;;) {
    sum += recurse(depth, rounds);
    asm volatile("" : "+r"(sum));
  }
}
