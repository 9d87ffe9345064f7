#include "formats/image/decompress_stream.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include <lz4frame.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

namespace windlass::image {
namespace {

constexpr std::uint64_t kDecoderMemory = std::uint64_t{256} << 20;

// What one call has done.
struct Step {
  std::size_t consumed = 0, produced = 0;
  bool stream_ended = false;
  bool damaged = false;
  bool wants_too_much = false;  // memory
};

class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual Step step(ByteView in, std::byte* out, std::size_t room) = 0;
};

class GzipDecoder final : public Decoder {
 public:
  GzipDecoder() { (void)inflateInit2(&stream_, MAX_WBITS + 16); }  // 16: gzip's header and trailer
  ~GzipDecoder() override { (void)inflateEnd(&stream_); }
  Step step(ByteView in, std::byte* out, std::size_t room) override {
    stream_.next_in = const_cast<Bytef*>(in.u8());
    stream_.avail_in = static_cast<uInt>(std::min<std::size_t>(in.size(), 1U << 30));
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(room);
    const auto before = stream_.avail_in;
    const int status = inflate(&stream_, Z_NO_FLUSH);
    Step step{.consumed = before - stream_.avail_in, .produced = room - stream_.avail_out};
    step.stream_ended = status == Z_STREAM_END;
    step.damaged = status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR;
    if (step.stream_ended) (void)inflateReset(&stream_);
    return step;
  }

 private:
  z_stream stream_{};
};

class XzDecoder final : public Decoder {
 public:
  ~XzDecoder() override { lzma_end(&stream_); }
  Step step(ByteView in, std::byte* out, std::size_t room) override {
    if (!begun_) begun_ = lzma_stream_decoder(&stream_, kDecoderMemory, 0) == LZMA_OK;
    if (!begun_) return {.wants_too_much = true};
    stream_.next_in = in.u8();
    stream_.avail_in = in.size();
    stream_.next_out = reinterpret_cast<std::uint8_t*>(out);
    stream_.avail_out = room;
    const lzma_ret status = lzma_code(&stream_, LZMA_RUN);
    Step step{.consumed = in.size() - stream_.avail_in, .produced = room - stream_.avail_out};
    step.stream_ended = status == LZMA_STREAM_END;
    step.wants_too_much = status == LZMA_MEMLIMIT_ERROR || status == LZMA_MEM_ERROR;
    step.damaged = status != LZMA_OK && status != LZMA_STREAM_END && status != LZMA_BUF_ERROR && !step.wants_too_much;
    begun_ = !step.stream_ended;
    return step;
  }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool begun_ = false;
};

class ZstdDecoder final : public Decoder {
 public:
  Step step(ByteView in, std::byte* out, std::size_t room) override {
    ZSTD_inBuffer input{in.data(), in.size(), 0};
    ZSTD_outBuffer output{out, room, 0};
    const std::size_t hint = ZSTD_decompressStream(stream_.get(), &output, &input);
    Step step{.consumed = input.pos, .produced = output.pos};
    step.stream_ended = hint == 0;
    step.damaged = ZSTD_isError(hint) != 0;
    // Its error number for a window above 128 MiB is not stable, its text is.
    step.wants_too_much =
        step.damaged && std::strcmp(ZSTD_getErrorName(hint), "Frame requires too much memory for decoding") == 0;
    return step;
  }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };
  std::unique_ptr<ZSTD_DStream, Free> stream_{ZSTD_createDStream()};
};

class Lz4Decoder final : public Decoder {
 public:
  Lz4Decoder() { (void)LZ4F_createDecompressionContext(&context_, LZ4F_VERSION); }
  ~Lz4Decoder() override { (void)LZ4F_freeDecompressionContext(context_); }
  Step step(ByteView in, std::byte* out, std::size_t room) override {
    Step step{.consumed = in.size(), .produced = room};
    const std::size_t hint = LZ4F_decompress(context_, out, &step.produced, in.data(), &step.consumed, nullptr);
    step.damaged = LZ4F_isError(hint) != 0;
    step.stream_ended = hint == 0;
    if (step.damaged) step.consumed = step.produced = 0;  // it does not say
    return step;
  }

 private:
  LZ4F_dctx* context_ = nullptr;
};

std::unique_ptr<Decoder> decoder_of(Compression compression) {
  switch (compression) {
    case Compression::kGzip: return std::make_unique<GzipDecoder>();
    case Compression::kXz: return std::make_unique<XzDecoder>();
    case Compression::kZstd: return std::make_unique<ZstdDecoder>();
    case Compression::kLz4: return std::make_unique<Lz4Decoder>();
    case Compression::kNone: break;
  }
  return nullptr;
}

}  // namespace

Compression compression_of(ByteView file) {
  const auto begins_with = [&](std::string_view magic) {
    return file.size() >= magic.size() && std::memcmp(file.data(), magic.data(), magic.size()) == 0;
  };
  if (begins_with("\x1f\x8b\x08")) return Compression::kGzip;                                 // RFC 1952
  if (begins_with(std::string_view("\xfd\x37\x7a\x58\x5a\x00", 6))) return Compression::kXz;  // xz-file-format.txt
  if (begins_with("\x28\xb5\x2f\xfd")) return Compression::kZstd;                             // RFC 8878
  if (begins_with("\x04\x22\x4d\x18")) return Compression::kLz4;                              // lz4_Frame_format.md
  return Compression::kNone;
}

Expected<std::uint64_t> unpack(ByteView file, std::uint64_t limit, TakeBytes take) {
  constexpr std::size_t kPiece = std::size_t{256} << 10;
  const auto decoder = decoder_of(compression_of(file));
  if (decoder == nullptr) return fail(ErrorCode::kUnsupported, "not compressed in a way that is known", file.origin());
  std::vector<std::byte> piece(kPiece);
  std::uint64_t at = 0, total = 0;
  bool within_stream = true;
  while (at < file.size() || within_stream) {
    const Step step = decoder->step(*file.sub(at, file.size() - at), piece.data(), piece.size());
    at += step.consumed;
    if (step.wants_too_much)
      return fail(ErrorCode::kLimit, "compressed data want too large a window", file.origin() + at, total);
    if (step.damaged) return fail(ErrorCode::kMalformed, "compressed data are damaged", file.origin() + at, total);
    if (step.produced > limit - total)
      return fail(ErrorCode::kLimit, "compressed data expand beyond the limit", file.origin() + at, limit);
    total += step.produced;
    if (step.produced != 0)
      if (const auto taken = take(ByteView(piece.data(), step.produced)); !taken) return Failure(taken.error());
    within_stream = !step.stream_ended;
    if (step.consumed != 0 || step.produced != 0) continue;
    if (at < file.size()) return fail(ErrorCode::kMalformed, "compressed data are damaged", file.origin() + at, total);
    return fail(ErrorCode::kTruncated, "compressed data end within a stream", file.origin() + at, total);
  }
  return total;
}

}  // namespace windlass::image
