// What a C++ program that names its own functions with the installed library looks like.
#include <windlass/symbols.h>

#include <cstdint>
#include <cstdio>

int main() {
  const windlass::Symbolizer symbols = windlass::Symbolizer::of_self();
  const auto address = reinterpret_cast<std::uint64_t>(&main);
  const windlass::NamedAddress at = symbols.name(windlass::CodeAddress::instruction(address));
  if (at.frames.empty()) return 1;
  std::printf("%s\n", at.frames.back().function.data());
  return at.frames.back().function == "main" ? 0 : 2;
}
