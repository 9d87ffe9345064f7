// Bytes as gzip, xz, zstd and lz4 write them.
#pragma once

#include <lz4frame.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <cstddef>
#include <vector>

#include "formats/image/decompress_stream.h"

namespace windlass::test {

using Bytes = std::vector<std::byte>;

inline Bytes gzipped(const Bytes& in) {
  Bytes out(in.size() + in.size() / 1000 + 1024);
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline Bytes compressed(image::Compression how, const Bytes& in) {
  Bytes out(in.size() + in.size() / 100 + 4096);
  auto* to = reinterpret_cast<std::uint8_t*>(out.data());
  const auto* from = reinterpret_cast<const std::uint8_t*>(in.data());
  std::size_t size = 0;
  switch (how) {
    case image::Compression::kNone: return in;
    case image::Compression::kGzip: return gzipped(in);
    case image::Compression::kXz:
      (void)lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, nullptr, from, in.size(), to, &size, out.size());
      break;
    case image::Compression::kZstd: {
      ZSTD_CCtx* context = ZSTD_createCCtx();
      ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
      size = ZSTD_compress2(context, to, out.size(), from, in.size());
      ZSTD_freeCCtx(context);
      break;
    }
    case image::Compression::kLz4: {
      LZ4F_preferences_t checked{};
      checked.frameInfo.contentChecksumFlag = LZ4F_contentChecksumEnabled;
      size = LZ4F_compressFrame(to, out.size(), from, in.size(), &checked);
      break;
    }
  }
  out.resize(size);
  return out;
}

}  // namespace windlass::test
