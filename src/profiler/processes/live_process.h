// What /proc says of one process that runs.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string_view>
#include <vector>

#include "profiler/doctor/system_error.h"
#include "profiler/doctor/system_facts.h"

namespace windlass::profiler {

// Of /proc/PID/status (proc(5)).
struct LifeStatus {
  std::uint32_t tgid = 0;  // 0: there is no such process
  std::uint32_t parent = 0;
  char state = 'X';
  unsigned threads = 0;
  // A zombie keeps its number; one with threads is only its first thread's end.
  [[nodiscard]] bool alive() const { return tgid != 0 && state != 'X' && (state != 'Z' || threads > 1); }
};
[[nodiscard]] LifeStatus parse_life_status(std::string_view text);
// `pid` may be a thread's.
[[nodiscard]] LifeStatus read_life_status(std::uint32_t pid);

// False once its number is no process's, as a signal would find out.
[[nodiscard]] bool process_exists(std::uint32_t tgid);

// The processes that these have started, and what those have started, as far as they are there; in no order.
[[nodiscard]] std::vector<std::uint32_t> descendants_of(const std::vector<std::uint32_t>& processes);

// CPU time of the process and of the children it has waited for, seconds; nothing if it has gone.
[[nodiscard]] std::optional<double> cpu_seconds_of(std::uint32_t tgid);
// Of the children that this process has waited for, seconds.
[[nodiscard]] std::optional<double> cpu_seconds_of_children();

// The process to record, by the number of one of its threads, if it is there and may be looked at: without its mappings
// nothing of it could be unwound.
[[nodiscard]] std::expected<std::uint32_t, SystemError> find_target(std::uint32_t pid, const SystemFacts& facts);

}  // namespace windlass::profiler
