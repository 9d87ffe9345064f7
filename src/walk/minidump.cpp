#include "windlass/target.h"

namespace windlass {

Expected<Target> open_minidump(const std::string&, const DumpOptions&) {
  return fail(ErrorCode::kUnsupported, "minidumps are not read yet", 0);
}

}  // namespace windlass
