// What samples in a signal handler have seen: how often each stack, as text. Signal-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

namespace windlass::test {

struct SeenStacks {
  std::atomic<std::uint64_t> samples = 0;
  std::uint64_t count[64] = {};
  char text[64][32] = {};
  unsigned used = 0;

  void add(const char* stack) {
    samples.fetch_add(1);
    unsigned i = 0;
    while (i < used && std::strcmp(text[i], stack) != 0) ++i;
    if (i == 64) return;
    if (i == used) std::strcpy(text[used++], stack);
    ++count[i];
  }
};

}  // namespace windlass::test
