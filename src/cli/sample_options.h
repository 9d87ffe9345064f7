// The options of `record` and `top` that say which samples are taken, and what labels they have.
#pragma once

#include <CLI/CLI.hpp>

#include "profiler/samples/recorder.h"

namespace windlass::cli {

// -a, -p, --children, and COMMAND.
void add_target_options(CLI::App& command, profiler::RecorderOptions& options, const char* help_of_command);

// --comm, --uid, --cgroup, --container, --exclude.
void add_filter_options(CLI::App& command, std::vector<profiler::FilterOption>& filters);

// --table-cache.
void add_table_cache_option(CLI::App& command, profiler::RecorderOptions& options);

// --label, --label-env, --labels, --thread-labels, --kubelet.
void add_label_options(CLI::App& command, profiler::RecorderOptions& options);

}  // namespace windlass::cli
