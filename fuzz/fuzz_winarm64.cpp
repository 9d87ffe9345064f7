// Input: a function table of up to 255 entries (their number is the first byte), then the bytes of a section that
// starts at RVA 0x2000, into which begin and record RVAs of the entries are folded. Everything but the container is the
// input's: fuzz_pe has that.
#include <vector>

#include "arm64_image.h"
#include "support/pe_builder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windlass;
  if (size < 1) return 0;
  const std::size_t entries = std::min<std::size_t>(data[0], (size - 1) / 8);
  std::vector<std::uint8_t> table(entries * 8);
  if (entries > 0) std::memcpy(table.data(), data + 1, table.size());
  std::vector<std::uint8_t> section(std::max<std::size_t>(size - 1 - table.size(), 1));
  if (size > 1 + table.size()) std::memcpy(section.data(), data + 1 + table.size(), section.size());
  for (std::size_t i = 0; i < entries; ++i) {
    std::uint32_t words[2];
    std::memcpy(words, table.data() + i * 8, 8);
    words[0] &= 0xfffff;
    if ((words[1] & 3) == 0 || (words[1] & 3) == 3)
      words[1] = (words[1] & 7) + 0x2000 + (static_cast<std::uint32_t>((words[1] >> 3) % (section.size() + 8)) & ~7U);
    std::memcpy(table.data() + i * 8, words, 8);
  }
  test::PeBuilder builder(image::PeMachine::kArm64);
  builder.add(".text", std::vector<std::uint8_t>(16), true);
  builder.add(".xdata", section);
  builder.add_function_table(table);
  const std::vector<std::uint8_t> bytes = builder.build();
  const auto image = image::PeImage::parse(ByteView(bytes));
  FUZZ_CHECK(image);
  fuzz::walk_arm64_image(*image);
  return 0;
}
