// The options of `record` and `top` that say what samples are taken of.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "profiler/kernel/event_specs.h"

namespace windlass::cli {

struct EventArguments {
  std::vector<std::string> events;             // empty: "cpu"
  std::optional<std::uint64_t> off_cpu, lock;  // in ns
  bool wakers = false, lock_holders = false;
};

// -e, --off-cpu, --wakers, --lock, --lock-holders.
void add_event_options(CLI::App& command, EventArguments& to);

// The events that were chosen; an error where one was chosen twice, or two do not go together.
[[nodiscard]] std::expected<std::vector<profiler::EventSpec>, std::string> events_of(const EventArguments& arguments);

}  // namespace windlass::cli
