// Input: one byte (bit 0: mapped layout), then a PE image.
#include "check.h"
#include "formats/image/function_table.h"
#include "formats/image/pe.h"
#include "formats/image/pe_names.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windlass;
  using namespace windlass::image;
  if (size == 0) return 0;
  const ByteView bytes(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  const auto image = PeImage::parse(bytes, (data[0] & 1) != 0 ? PeLayout::kMapped : PeLayout::kFile);
  if (!image) return 0;
  FUZZ_CHECK(PeImage::sniff(bytes));
  FUZZ_CHECK(image->sections().size() <= size);
  for (const PeSection& section : image->sections()) {
    const auto rest = image->from_rva(section.rva);
    if (rest) FUZZ_CHECK(rest->size() <= size);
    (void)image->section_at(section.rva);
  }
  const FunctionTable table(image->exception_directory(), image->is_x64_format() ? 12 : 8);
  FUZZ_CHECK(table.size() <= size);
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (i > 0) FUZZ_CHECK(table.begin_of(table.stored_index(i - 1)) <= table.begin_of(table.stored_index(i)));
    const auto found = table.last_at_or_before(table.begin_of(table.stored_index(i)));
    FUZZ_CHECK(found && *found >= i);
    if (i < 64) (void)import_at(*image, table.word(table.stored_index(i), 1));
  }
  const PeSymbols symbols = PeSymbols::make(*image);
  FUZZ_CHECK(symbols.size() <= 2 * size);
  if (const auto exports = PeExports::open(*image)) {
    for (std::uint32_t i = 0; i < exports->name_count() && i < 256; ++i) {
      if (const auto named = exports->named(i)) (void)exports->find(named->name);
    }
  }
  return 0;
}
