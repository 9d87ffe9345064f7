// Where ELF images are not read.
#include "source/unwind_source.h"

namespace windlass::source {

Expected<std::unique_ptr<UnwindSource>> open_elf_source(ByteView image) {
  return fail(ErrorCode::kUnsupported, "this build reads no ELF images", image.origin());
}

}  // namespace windlass::source
