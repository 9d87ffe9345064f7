// The keys of a process's labels, shared with profilers by OpenTelemetry's process context (OTEP 4719).
#pragma once

#include <cstdint>
#include <string_view>

#include "windlass/c/labels.h"

namespace windlass::capi {

// windlass_add_label_key().
windlass_status add_label_key(std::string_view name, std::uint32_t& key);
// Signal-safe.
[[nodiscard]] std::uint32_t label_key_count();

}  // namespace windlass::capi
