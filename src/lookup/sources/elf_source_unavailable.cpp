// Where ELF images are not read, nor tables of Go.
#include "lookup/sources/pe_source.h"

namespace windlass::sources {

Expected<std::unique_ptr<UnwindSource>> open_elf_source(ByteView image) {
  return fail(ErrorCode::kUnsupported, "this build reads no ELF images", image.origin());
}

std::unique_ptr<UnwindSource> make_go_source(const image::PeImage&, ErrorSink) { return nullptr; }

}  // namespace windlass::sources
