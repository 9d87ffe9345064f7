// Where ELF images are not read.
#include "walk/unwind_source.h"

namespace windlass::walk {

Expected<std::unique_ptr<UnwindSource>> make_elf_source(ByteView image) {
  return fail(ErrorCode::kUnsupported, "this build reads no ELF images", image.origin());
}

}  // namespace windlass::walk
