// The processed profile format of the Firefox Profiler, version 61
// (github.com/firefox-devtools/profiler, docs-developer/CHANGELOG-formats.md). The profiler upgrades older versions.
#pragma once

#include "base/text_writer.h"
#include "profiler/export/thread_lines.h"
#include "profiler/profile/profile.h"
#include "windlass/error.h"

namespace windlass::exporter {

// `lines`: of this profile and this value, which the samples have. Waits become markers.
[[nodiscard]] Expected<void> write_firefox(const profile::Profile& profile, const ThreadLines& lines,
                                           profile::ValueType type, TextWriter& out);

}  // namespace windlass::exporter
