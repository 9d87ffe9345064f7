#include "profiler/transport/otlp_pack.h"

#include "profiler/export/gzip.h"

namespace windlass::transport {
std::optional<OtlpCompression> otlp_compression(std::string_view name) {
  if (name == "none") return OtlpCompression::kNone;
  if (name == "gzip") return OtlpCompression::kGzip;
  if (name == "zstd") return OtlpCompression::kZstd;
  return std::nullopt;
}

Expected<std::string> pack_otlp(const std::string& request, OtlpCompression how) {
  if (how == OtlpCompression::kNone) return request;
  if (how == OtlpCompression::kZstd) return pack_zstd(request);
  std::string packed;
  TextWriter out(&packed);
  exporter::GzipWriter gzip(out);
  gzip.write(request);
  if (const auto finished = gzip.finish(); !finished) return Failure(finished.error());
  return packed;
}

OtlpCompression packing_of(std::string_view packed) {
  if (packed.starts_with("\x1f\x8b")) return OtlpCompression::kGzip;
  if (packed.starts_with("\x28\xb5\x2f\xfd")) return OtlpCompression::kZstd;
  return OtlpCompression::kNone;
}

}  // namespace windlass::transport
