#include "formats/image/decompress.h"

#include <algorithm>

#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

namespace windlass::image {
namespace {

// The buffer grows with the real output, so that a false size in a header cannot make us allocate much.
constexpr std::size_t kFirstChunk = std::size_t{1} << 20;

std::size_t next_size(std::size_t now, std::uint64_t limit) {
  return static_cast<std::size_t>(std::min<std::uint64_t>(std::max(kFirstChunk, now * 2), limit));
}

}  // namespace

Expected<std::vector<std::byte>> inflate_zlib(ByteView input, std::uint64_t size, std::uint64_t limit) {
  if (size > limit) return fail(ErrorCode::kLimit, "compressed section promises too much", input.origin(), size);
  z_stream stream{};
  if (inflateInit(&stream) != Z_OK) return fail(ErrorCode::kSystem, "zlib cannot start", input.origin(), 12);
  std::vector<std::byte> out;
  std::size_t consumed = 0;
  int status = Z_OK;
  while (status == Z_OK && out.size() < size) {
    const std::size_t produced = stream.total_out;
    out.resize(std::min<std::size_t>(next_size(out.size(), limit), static_cast<std::size_t>(size)));
    stream.next_out = reinterpret_cast<Bytef*>(out.data()) + produced;
    stream.avail_out = static_cast<uInt>(std::min<std::size_t>(out.size() - produced, 1u << 30));
    do {
      stream.next_in = const_cast<Bytef*>(input.u8() + consumed);
      stream.avail_in = static_cast<uInt>(std::min<std::size_t>(input.size() - consumed, 1u << 30));
      const auto before = stream.avail_in;
      status = inflate(&stream, Z_NO_FLUSH);
      consumed += before - stream.avail_in;
    } while (status == Z_OK && stream.avail_out != 0 && consumed < input.size());
    if (status == Z_OK && stream.avail_out != 0) status = Z_BUF_ERROR;  // input used up
    if (stream.total_out < out.size()) out.resize(stream.total_out);
  }
  inflateEnd(&stream);
  if (out.size() != size)
    return fail(ErrorCode::kMalformed, "zlib data of a section are damaged", input.origin(), input.size());
  return out;
}

Expected<std::vector<std::byte>> inflate_zstd(ByteView input, std::uint64_t size, std::uint64_t limit) {
  if (size > limit) return fail(ErrorCode::kLimit, "compressed section promises too much", input.origin(), size);
  ZSTD_DStream* stream = ZSTD_createDStream();
  if (stream == nullptr) return fail(ErrorCode::kSystem, "zstd cannot start", input.origin(), 12);
  std::vector<std::byte> out;
  ZSTD_inBuffer in{input.data(), input.size(), 0};
  std::size_t produced = 0;
  bool progress = true;
  while (progress && produced < size) {
    if (produced == out.size())
      out.resize(std::min<std::size_t>(next_size(out.size(), limit), static_cast<std::size_t>(size)));
    ZSTD_outBuffer window{out.data(), out.size(), produced};
    const std::size_t consumed = in.pos;
    const std::size_t hint = ZSTD_decompressStream(stream, &window, &in);
    progress = ZSTD_isError(hint) == 0 && (window.pos != produced || in.pos != consumed);
    produced = window.pos;
  }
  ZSTD_freeDStream(stream);
  if (produced != size)
    return fail(ErrorCode::kMalformed, "zstd data of a section are damaged", input.origin(), input.size());
  out.resize(produced);
  return out;
}

Expected<std::vector<std::byte>> inflate_xz(ByteView input, std::uint64_t limit) {
  lzma_stream stream = LZMA_STREAM_INIT;
  constexpr std::uint64_t kDecoderMemory = std::uint64_t{256} << 20;
  if (lzma_stream_decoder(&stream, kDecoderMemory, LZMA_CONCATENATED) != LZMA_OK)
    return fail(ErrorCode::kSystem, "lzma cannot start", input.origin(), 12);
  stream.next_in = input.u8();
  stream.avail_in = input.size();
  std::vector<std::byte> out;
  lzma_ret status = LZMA_OK;
  while (status == LZMA_OK) {
    if (stream.total_out == out.size()) {
      if (out.size() >= limit) {
        status = LZMA_MEMLIMIT_ERROR;
        break;
      }
      out.resize(next_size(out.size(), limit));
    }
    stream.next_out = reinterpret_cast<std::uint8_t*>(out.data()) + stream.total_out;
    stream.avail_out = out.size() - stream.total_out;
    status = lzma_code(&stream, LZMA_FINISH);
  }
  out.resize(stream.total_out);
  lzma_end(&stream);
  if (status == LZMA_MEMLIMIT_ERROR)
    return fail(ErrorCode::kLimit, "xz data expand beyond the limit", input.origin(), limit);
  if (status != LZMA_STREAM_END)
    return fail(ErrorCode::kMalformed, "xz data are damaged", input.origin(), static_cast<std::uint64_t>(status));
  return out;
}

}  // namespace windlass::image
