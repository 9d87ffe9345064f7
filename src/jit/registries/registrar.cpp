#include "jit/registries/batch.h"

namespace windlass {

Expected<std::unique_ptr<Registrar>> open_registrar(Registry registry, const RegistrarOptions& options) {
  switch (registry) {
    case Registry::kWindlass: return registries::open_windlass();
    case Registry::kFrameInfo: return registries::open_frame_info();
    case Registry::kGdb: return registries::open_gdb();
    case Registry::kPerfMap: return registries::open_perf_map(options);
    case Registry::kJitdump: return registries::open_jitdump(options);
    case Registry::kGrowableTable: return registries::open_growable_table(options);
    case Registry::kTableCallback: return registries::open_table_callback(options);
    case Registry::kFunctionTable: return registries::open_function_table(options);
    case Registry::kCodeManager: return registries::open_code_manager(options);
  }
  return fail(ErrorCode::kUnsupported, "no such registry", static_cast<std::uint64_t>(registry));
}

}  // namespace windlass
