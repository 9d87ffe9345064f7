// Everybody who can walk the own stack, behind one function type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Writes the return addresses of the caller's stack, innermost first; returns how many.
using Walker = std::size_t (*)(std::uint64_t* pcs, std::size_t max);

struct Peer {
  std::string name;
  Walker walk;
};

// Those this machine has. Loads their libraries but walks nothing.
std::vector<Peer> walk_peers();

// What the others are compared with: the chain of frame pointers.
std::size_t reference_walk(std::uint64_t* pcs, std::size_t max);
