// Input: one byte of flags, then a section of call frame information.
#include "formats/dwarf/cfi.h"
#include "formats/dwarf/eh_frame_hdr.h"
#include "walk_section.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windlass;
  if (size == 0) return 0;
  const dwarf::CfiSection section = fuzz::section_of(data, size);
  fuzz::walk_section(section);
  // The same bytes as a header and as random access.
  if (const auto header = dwarf::EhFrameHdr::parse(section.bytes, section.address)) {
    const auto report = [](const Error&) {};
    dwarf::CfiReader reader(section, report);
    for (const std::uint64_t pc : {std::uint64_t{0}, std::uint64_t{0x10010}, ~std::uint64_t{0}}) {
      if (const auto fde = header->fde_address(pc)) (void)reader.fde_at(*fde - section.address);
    }
  }
  return 0;
}
