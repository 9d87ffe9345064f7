// Files that were compressed as a whole, unpacked piece by piece.
#pragma once

#include <cstdint>

#include "windlass/bytes.h"
#include "windlass/function_ref.h"

namespace windlass::image {

enum class Compression : std::uint8_t { kNone, kGzip, kXz, kZstd, kLz4 };

// By its first bytes, whatever its name is.
[[nodiscard]] Compression compression_of(ByteView file);

// Takes the next bytes; an error ends the unpacking, and is what comes out.
using TakeBytes = FunctionRef<Expected<void>(ByteView piece)>;

// Unpacks the whole file, in order, and returns the number of bytes that came out. Consecutive streams count as one, as
// gzip, xz, zstd and lz4 treat them. Takes 256 KiB and the decoder's window.
//
// Errors, with the offset in the file:
// - kMalformed.
// - kTruncated, if the file ends within a stream, with the number of bytes that came out.
// - kLimit, above `limit` bytes, and for a stream that needs a window of more than 256 MiB (zstd: 128 MiB).
[[nodiscard]] Expected<std::uint64_t> unpack(ByteView file, std::uint64_t limit, TakeBytes take);

}  // namespace windlass::image
