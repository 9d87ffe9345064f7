// The DLL of truth_windows.cpp.
#include <cstdint>

extern "C" __declspec(dllexport) [[gnu::noinline]] std::uint64_t
    call_back(std::uint64_t (*callback)(std::uint64_t), std::uint64_t seed) {
  volatile char memory[200];
  memory[seed & 127] = 1;
  const std::uint64_t result = callback(seed);
  return result + static_cast<std::uint64_t>(memory[seed & 127]);
}
