// A library for record_target's dlopen mode; WORK names its function, which calls itself once so that its frame counts.
#include <cstdint>

extern "C" [[gnu::noinline]] std::uint64_t WORK(std::uint64_t rounds) {
  volatile std::uint64_t x = 1;
  if (rounds > 10) {
    x = WORK(10);
    for (std::uint64_t i = 0; i < rounds; ++i) x = x * 3 + i;
  }
  return x;
}
