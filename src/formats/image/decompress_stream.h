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

// All that is in the file, in order: streams behind each other are one, as gzip, xz, zstd and lz4 have it. How many
// bytes it was. Errors, with the offset in the file: kMalformed; kTruncated where the file ends within a stream, with
// the number of bytes that had come out; kLimit above `limit` bytes, or where a stream wants a window of more than
// 256 MiB (128 MiB for zstd). Keeps 256 KiB, and the decoder's window.
[[nodiscard]] Expected<std::uint64_t> unpack(ByteView file, std::uint64_t limit, TakeBytes take);

}  // namespace windlass::image
