// Bodies of OTLP requests, compressed as they are sent.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "profiler/transport/otlp_request.h"
#include "windlass/error.h"

namespace windlass::transport {

enum class OtlpCompression : std::uint8_t { kNone, kGzip, kZstd };

// "none", "gzip", "zstd"; nothing: another text.
[[nodiscard]] std::optional<OtlpCompression> otlp_compression(std::string_view name);

// Errors: kUnsupported: this build has no zstd. kSystem: out of memory.
[[nodiscard]] Expected<std::string> pack_otlp(const std::string& request, OtlpCompression how);
// How a packed request was compressed. The first bytes tell: a request without compression begins with a field.
[[nodiscard]] OtlpCompression packing_of(std::string_view packed);

// Receivers of gRPC take 4 MiB unless told otherwise.
inline constexpr std::size_t kMostOtlpBytes = std::size_t{7} << 19;  // 3.5 MiB, uncompressed

// By libzstd, at level 3. windlass-static has none.
[[nodiscard]] Expected<std::string> pack_zstd(std::string_view bytes);

}  // namespace windlass::transport
