// The options of `windlass agent`, on the command line and in a file.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/agent_otlp.h"
#include "cli/event_options.h"
#include "profiler/samples/recorder.h"

namespace windlass::cli {

struct AgentArguments {
  profiler::RecorderOptions recorder;
  EventArguments events;
  std::string store, host, config, metrics;
  std::string store_spool;                                    // a folder; empty: the store is a file
  std::uint64_t store_spool_size = std::uint64_t{256} << 20;  // bytes
  OtlpArguments otlp;                                         // without a URL: no server
  double interval = 10;                                       // seconds
  double keep = 7 * 86400.0;                                  // seconds
  std::uint64_t keep_size = std::uint64_t{2} << 30;           // bytes
};

// `to` must outlive the command.
void add_agent_options(CLI::App& command, AgentArguments& to);

// One line of a file of options: "keep-size = 500M", or "wakers". No option of the command line starts with a digit or
// has a space.
struct ConfigLine {
  unsigned number = 0;
  std::string key, value;
  bool has_value = false;
};
// Lines that are empty or begin with # are left out. An error names the line.
[[nodiscard]] std::expected<std::vector<ConfigLine>, std::string> parse_config(std::string_view text);

// Of the command line and of the file that it names with --config, if any. An option of the command line replaces all
// lines of its name. `command` has been parsed. An error is a sentence, with the file and the line.
[[nodiscard]] std::expected<AgentArguments, std::string> agent_arguments(const CLI::App& command,
                                                                         const std::string& config);

}  // namespace windlass::cli
