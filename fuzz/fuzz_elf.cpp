// Input: an ELF file.
#include "formats/image/elf.h"
#include "formats/image/unwind_sections.h"
#include "walk_section.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windlass;
  const auto image = image::ElfImage::parse(ByteView(reinterpret_cast<const std::byte*>(data), size));
  if (!image) return 0;
  for (const image::Section& section : image->sections()) {
    (void)image->section(section.name);
    // Only what can be compressed: reading the others is a bounds check.
    if (section.name.starts_with(".")) (void)image->stored_bytes(section);
  }
  for (const image::Segment& segment : image->segments()) {
    const auto bytes = image->from_address(segment.vaddr);
    if (bytes) FUZZ_CHECK(bytes->size() <= size);
    if (const auto address = image->address_of_file_offset(segment.offset)) (void)image->at_address(*address, 16);
  }
  FUZZ_CHECK(image->build_id().size() <= 128);
  const auto report = [](const Error&) {};
  const auto found = image::find_unwind_sections(*image, report);
  for (const dwarf::CfiSection& section : found.sections) fuzz::walk_section(section);
  return 0;
}
