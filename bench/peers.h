// The peers that evaluate call frame information, run beside Windlass in the same benchmark.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace windlass::bench {

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
