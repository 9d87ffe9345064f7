#include "registration/batch.h"

namespace windlass {

Expected<std::unique_ptr<Registrar>> open_registrar(Registry registry, const RegistrarOptions& options) {
  switch (registry) {
    case Registry::kWindlass: return registration::open_windlass();
    case Registry::kFrameInfo: return registration::open_frame_info();
    case Registry::kGdb: return registration::open_gdb();
    case Registry::kPerfMap: return registration::open_perf_map(options);
    case Registry::kJitdump: return registration::open_jitdump(options);
    case Registry::kSFrame: return registration::open_sframe();
    case Registry::kGrowableTable: return registration::open_growable_table(options);
    case Registry::kTableCallback: return registration::open_table_callback(options);
    case Registry::kFunctionTable: return registration::open_function_table(options);
  }
  return fail(ErrorCode::kUnsupported, "no such registry", static_cast<std::uint64_t>(registry));
}

}  // namespace windlass
