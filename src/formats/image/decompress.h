// Bounded decompression into owned storage.
#pragma once

#include <cstdint>
#include <vector>

#include "windlass/bytes.h"

namespace windlass::image {

// Each fails with kMalformed on damaged input, kLimit above `limit` bytes; `size` is what the header promised.
[[nodiscard]] Expected<std::vector<std::byte>> inflate_zlib(ByteView input, std::uint64_t size, std::uint64_t limit);
[[nodiscard]] Expected<std::vector<std::byte>> inflate_zstd(ByteView input, std::uint64_t size, std::uint64_t limit);
[[nodiscard]] Expected<std::vector<std::byte>> inflate_xz(ByteView input, std::uint64_t limit);

}  // namespace windlass::image
