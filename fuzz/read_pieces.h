// The memory of a dump, wherever its pieces lie: every byte of every piece can be read.
#pragma once

#include <utility>
#include <vector>

#include "check.h"
#include "walk/target/dump_memory.h"

namespace windlass::fuzz {

inline void read_pieces(std::vector<walk::MemoryPiece> pieces) {
  const std::vector<walk::MemoryPiece> kept = pieces;
  walk::DumpMemory memory{MappedFile()};
  memory.set_pieces(std::move(pieces));
  for (const walk::MemoryPiece& piece : kept) {
    if (piece.bytes.empty()) continue;
    const std::uint64_t last = piece.begin + piece.bytes.size() - 1;
    std::uint64_t value = 0;
    FUZZ_CHECK(memory.read(piece.begin, &value, 1));
    FUZZ_CHECK(memory.read(last, &value, 1));
    (void)memory.read(last, &value, sizeof value);
    (void)memory.read(piece.begin - 4, &value, sizeof value);
  }
}

}  // namespace windlass::fuzz
