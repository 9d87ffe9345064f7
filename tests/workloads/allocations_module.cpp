// Opened by allocations_opener.c. Has libstdc++ linked in, with operators new and delete of its own.
#include <cstdint>
#include <new>
#include <string>

struct alignas(64) Wide {
  std::uint64_t words[8] = {};
};

extern "C" [[gnu::noinline]] int known_module(unsigned long rounds) {
  std::size_t wrong = 0;
  for (unsigned long i = 0; i < rounds; ++i) {
    std::string text(100, static_cast<char>('a' + i % 26));
    auto* const wide = new Wide;
    auto* const other = new (std::nothrow) int(3);
    asm volatile("" : : "r"(text.data()), "r"(wide), "r"(other) : "memory");
    wrong += reinterpret_cast<std::uintptr_t>(wide) % alignof(Wide) != 0;
    wrong += *other != 3;
    delete wide;
    delete other;
  }
  return wrong == 0 ? 0 : 1;
}
