#include <zstd.h>

#include "profiler/transport/otlp_pack.h"

namespace windlass::transport {

Expected<std::string> pack_zstd(std::string_view bytes) {
  constexpr int kLevel = 3;
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  const std::size_t size = ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), kLevel);
  if (ZSTD_isError(size) != 0) return fail(ErrorCode::kSystem, "cannot compress a batch by zstd", bytes.size());
  packed.resize(size);
  return packed;
}

}  // namespace windlass::transport
