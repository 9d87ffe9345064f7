// On Windows: what belongs to ELF.
#include "jit/registries/executable.h"

namespace windlass::registries {

Opened open_frame_info() { return fail(ErrorCode::kUnsupported, "no unwinder of Windows has __register_frame()", 0); }
Opened open_gdb() { return fail(ErrorCode::kUnsupported, "GDB is told of generated code where objects are ELF", 0); }
Opened open_perf_map(const RegistrarOptions&) {
  return fail(ErrorCode::kUnsupported, "there is no perf on Windows", 0);
}
Opened open_code_manager(const RegistrarOptions&) {
  return fail(ErrorCode::kUnsupported, "code managers are for Linux", 0);
}
Opened open_jitdump(const RegistrarOptions&) { return fail(ErrorCode::kUnsupported, "there is no perf on Windows", 0); }

Expected<void> check_executable(std::span<const Run>, walk::CodeExtent&) { return {}; }

}  // namespace windlass::registries
