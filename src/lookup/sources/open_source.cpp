// The readers of images, all of them: alone, so that who reads no files can do without (src/dropin/no_files.cpp).
#include <cstdint>

#include "lookup/sources/unwind_source.h"

namespace windlass::sources {

Expected<std::unique_ptr<UnwindSource>> open_source(ByteView bytes, image::PeLayout layout) {
  if (image::PeImage::sniff(bytes)) return open_pe_source(bytes, layout);
  constexpr std::uint32_t kElfMagic = 0x464c457f;  // "\177ELF"
  const auto magic = bytes.at<std::uint32_t>(0);
  if (!magic || *magic != kElfMagic) return fail(ErrorCode::kMalformed, "neither an ELF nor a PE file", bytes.origin());
  return open_elf_source(bytes);
}

std::unique_ptr<UnwindSource> make_source(ByteView bytes, image::PeLayout layout) {
  auto source = open_source(bytes, layout);
  return source ? std::move(*source) : make_failed_source(source.error(), image::PeImage::sniff(bytes));
}

}  // namespace windlass::sources
