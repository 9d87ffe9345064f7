// Folded stacks, one distinct stack a line, for flamegraph.pl, inferno, speedscope: "comm;root;...;leaf N", N in the
// unit of the value. The frame after comm of a stack that is not whole is "[truncated: reason]".
#pragma once

#include <string>

#include "base/text_writer.h"
#include "profiler/profile/profile.h"
#include "windlass/error.h"

namespace windlass::exporter {

[[nodiscard]] Expected<void> write_folded(const profile::Profile& profile, TextWriter& out, profile::ValueType type);
[[nodiscard]] inline Expected<void> write_folded(const profile::Profile& profile, TextWriter& out) {
  return write_folded(profile, out, shown_by_default(profile));
}

// A frame's name as it stands in a line.
[[nodiscard]] std::string folded_name(const std::string& name);

}  // namespace windlass::exporter
