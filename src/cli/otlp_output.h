// report --otlp.
#pragma once

#include "base/text_writer.h"
#include "profiler/profile/profile.h"
#include "windlass/error.h"

namespace windlass::cli {

// The profile as the body of one request to a collector (profiler/transport/otlp_request.h).
[[nodiscard]] Expected<void> write_otlp(const profile::Profile& profile, TextWriter& out);

}  // namespace windlass::cli
