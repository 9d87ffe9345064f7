// The Trace Event Format (JSON) of chrome://tracing and Perfetto: each frame is a slice, from the first of neighbouring
// samples that have the frame to the last.
#pragma once

#include "base/text_writer.h"
#include "profiler/export/thread_lines.h"
#include "profiler/profile/profile.h"
#include "windlass/error.h"

namespace windlass::exporter {

// `lines`: of this profile and value. A slice's categories are the kind of its code and the value's name.
[[nodiscard]] Expected<void> write_chrome(const profile::Profile& profile, const ThreadLines& lines,
                                          profile::ValueType type, TextWriter& out);

}  // namespace windlass::exporter
