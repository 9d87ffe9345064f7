// Elsewhere than on Windows: its function tables.
#include "jit/registries/batch.h"

namespace windlass::registries {
namespace {

Opened unavailable() { return fail(ErrorCode::kUnsupported, "function tables are registered on Windows x64 only", 0); }

}  // namespace

Opened open_growable_table(const RegistrarOptions&) { return unavailable(); }
Opened open_table_callback(const RegistrarOptions&) { return unavailable(); }
Opened open_function_table(const RegistrarOptions&) { return unavailable(); }

}  // namespace windlass::registries
