// speedscope's file format (https://www.speedscope.app/file-format-schema.json): one sampled profile of everything,
// then one a process where there are several. So for each event, the shown one first. Weights are the event's values,
// for example nanoseconds of CPU time.
#pragma once

#include <optional>

#include "base/text_writer.h"
#include "profiler/profile/profile.h"
#include "windlass/error.h"

namespace windlass::exporter {

[[nodiscard]] Expected<void> write_speedscope(const profile::Profile& profile, TextWriter& out,
                                              std::optional<profile::ValueType> first = {});

}  // namespace windlass::exporter
