// The options of `record` that say which samples are taken, and what labels they have.
#pragma once

#include <CLI/CLI.hpp>

#include "profiler/samples/recorder.h"

namespace windlass::cli {

// --comm, --uid, --cgroup, --container, --exclude.
void add_filter_options(CLI::App& command, std::vector<profiler::FilterOption>& filters);

// --label, --label-env, --labels, --thread-labels, --kubelet.
void add_label_options(CLI::App& command, profiler::RecorderOptions& options);

}  // namespace windlass::cli
