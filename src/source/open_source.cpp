// The readers of images, all of them: alone, so that who reads no files can do without (src/dropin/no_files.cpp).
#include "source/unwind_source.h"

namespace windlass::source {

Expected<std::unique_ptr<UnwindSource>> open_source(ByteView bytes, image::PeLayout layout) {
  return image::PeImage::sniff(bytes) ? open_pe_source(bytes, layout) : open_elf_source(bytes);
}

std::unique_ptr<UnwindSource> make_source(ByteView bytes, image::PeLayout layout) {
  auto source = open_source(bytes, layout);
  return source ? std::move(*source) : make_failed_source(source.error(), image::PeImage::sniff(bytes));
}

}  // namespace windlass::source
