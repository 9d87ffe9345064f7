// A library to walk through. PAD: of the frame, so that two of them, loaded in the same place, have other rows there.
#include <cstddef>

extern "C" __declspec(dllexport) std::size_t call_through(std::size_t (*callback)()) {
  volatile char space[PAD];
  space[0] = 1;
  const std::size_t result = callback();
  return result * static_cast<std::size_t>(space[0]);
}
