// The peers that evaluate call frame information, run beside Windlass in the same benchmark.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace windlass::bench {

// CPU time of this thread so far, user and system: wall time would count whoever else uses the machine.
[[nodiscard]] double cpu_seconds();

// CPU time of a command with its output thrown away; < 0: it could not be run.
struct CommandTime {
  double user = 0;
  double system = 0;
};
[[nodiscard]] CommandTime time_command(std::vector<const char*> arguments);

struct PeerResult {
  double seconds = 0;  // <= 0: not available here
  std::uint64_t rows = 0;
};

struct Peer {
  const char* name;
  PeerResult (*run)(const std::string& file);
};

[[nodiscard]] std::span<const Peer> peers();

}  // namespace windlass::bench
