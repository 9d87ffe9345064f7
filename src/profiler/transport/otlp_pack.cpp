#include "profiler/transport/otlp_pack.h"

#include <algorithm>

#include "profiler/export/gzip.h"

namespace windlass::transport {
namespace {

void add_parts(const profile::Profile& profile, const OtlpSource& source, std::size_t most_bytes, SampleRange range,
               std::vector<OtlpPart>& to) {
  std::string request = otlp_request(profile, source, range);
  if (request.size() > most_bytes && range.count > 1) {
    request = {};
    const std::size_t half = range.count / 2;
    add_parts(profile, source, most_bytes, {range.first, half}, to);
    add_parts(profile, source, most_bytes, {range.first + half, range.count - half}, to);
    return;
  }
  std::uint64_t samples = 0;
  for (std::size_t i = 0; i < range.count; ++i) samples += profile.samples[range.first + i].count;
  to.push_back({std::move(request), samples});
}

}  // namespace

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

std::vector<OtlpPart> otlp_parts(const profile::Profile& profile, const OtlpSource& source, std::size_t most_bytes) {
  std::vector<OtlpPart> parts;
  add_parts(profile, source, most_bytes, {0, profile.samples.size()}, parts);
  return parts;
}

}  // namespace windlass::transport
