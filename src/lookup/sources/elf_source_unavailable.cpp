// Where ELF images are not read.
#include "lookup/sources/unwind_source.h"

namespace windlass::sources {

Expected<std::unique_ptr<UnwindSource>> open_elf_source(ByteView image) {
  return fail(ErrorCode::kUnsupported, "this build reads no ELF images", image.origin());
}

}  // namespace windlass::sources
