// The parts of what follows a module's symbols ("C13"), each with its kind and size.
#pragma once

#include <algorithm>
#include <cstdint>

#include "windlass/bytes.h"
#include "windlass/function_ref.h"

namespace windlass::pdb {

// A damaged size ends the list.
inline void each_subsection(ByteView subsections, FunctionRef<void(std::uint32_t kind, ByteView bytes)> callback) {
  for (ByteCursor cursor(subsections); cursor.remaining() >= 8;) {
    const std::uint32_t kind = cursor.read<std::uint32_t>().value_or(0);
    const std::uint32_t size = cursor.read<std::uint32_t>().value_or(0);
    const auto bytes = cursor.bytes(size);
    if (!bytes) return;
    callback(kind, *bytes);
    (void)cursor.bytes(std::min<std::uint64_t>((4 - size % 4) % 4, cursor.remaining()));
  }
}

}  // namespace windlass::pdb
