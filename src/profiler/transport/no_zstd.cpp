// In place of pack_zstd.cpp: the compressor would be a third of a megabyte of windlass-static.
#include "profiler/transport/otlp_pack.h"

namespace windlass::transport {

Expected<std::string> pack_zstd(std::string_view) {
  return fail(ErrorCode::kUnsupported, "this build does not compress by zstd. Way out: gzip", 0);
}

}  // namespace windlass::transport
