// Input: a DWARF expression.
#include "walk_section.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windlass;
  const ByteView expression(reinterpret_cast<const std::byte*>(data), size);
  fuzz::check_expression(expression, Architecture::kX86_64);
  fuzz::check_expression(expression, Architecture::kAArch64);
  return 0;
}
