// speedscope's file format (https://www.speedscope.app/file-format-schema.json): one sampled profile of everything,
// then one a process where there are several. Weights are nanoseconds of CPU time.
#pragma once

#include "base/text_writer.h"
#include "profiler/profile/profile.h"
#include "windlass/error.h"

namespace windlass::exporter {

[[nodiscard]] Expected<void> write_speedscope(const profile::Profile& profile, TextWriter& out);

}  // namespace windlass::exporter
