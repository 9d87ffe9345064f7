// The peers that evaluate call frame information, run beside Windlass in the same benchmark.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace windlass::bench {

// CPU time of this thread so far, user and system: wall time would count whoever else uses the machine.
[[nodiscard]] double cpu_seconds();

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
