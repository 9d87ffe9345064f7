// gzip streams through zlib, both ways.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/text_writer.h"
#include "profiler/export/page_buffer.h"
#include "windlass/bytes.h"
#include "windlass/error.h"

namespace windlass::exporter {

class GzipWriter {
 public:
  explicit GzipWriter(TextWriter& out);
  ~GzipWriter();
  GzipWriter(const GzipWriter&) = delete;
  GzipWriter& operator=(const GzipWriter&) = delete;

  void write(std::string_view bytes) { deflate_all(bytes, Z_NO_FLUSH); }
  // Ends the stream and the output.
  [[nodiscard]] Expected<void> finish();

 private:
  void deflate_all(std::string_view bytes, int flush);

  TextWriter& out_;
  z_stream stream_{};
  bool ready_ = false;
  std::string buffer_;
};

// A part of a gzip file that is compressed by itself, so that several threads can work on one file.
struct GzipPart {
  bool good = false;  // false: out of memory
  std::string bytes;  // a deflate stream, which ends at a byte
  std::uint32_t crc = 0;
  std::size_t size = 0;  // of what it holds
};
// `last`: of the file.
[[nodiscard]] GzipPart gzip_part(std::string_view text, bool last);
// The file of its parts, in order. Empty: one of them is not good.
[[nodiscard]] std::string gzip_of(std::span<const GzipPart> parts);

[[nodiscard]] bool is_gzip(ByteView bytes);

// What a gzip file holds, in order: all members (RFC 1952 allows several). Bytes behind the last one are ignored, as
// gzip does. Of one thread; reads `bytes` while it lives. Takes zlib's 40 KiB.
class GzipReader {
 public:
  GzipReader(ByteView bytes, std::uint64_t max_bytes);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // The next bytes: as many as `to` has room for, fewer before the end or an error, 0 at the end. kLimit past
  // `max_bytes` in all; kMalformed or kTruncated naming the offset in the compressed bytes.
  [[nodiscard]] Expected<std::size_t> read(std::span<std::byte> to);

 private:
  [[nodiscard]] std::size_t step(std::span<std::byte> to);

  ByteView bytes_;
  std::uint64_t max_bytes_;
  z_stream stream_{};
  std::size_t taken_ = 0;
  std::uint64_t made_ = 0;
  bool ready_ = false, ended_ = false;
  std::optional<Error> error_;
};

// The whole content. Errors: those of GzipReader.
[[nodiscard]] Expected<PageBuffer> gunzip(ByteView bytes, std::uint64_t max_bytes);
// The first `most` bytes of the content; fewer if the file ends, or is damaged.
[[nodiscard]] std::string gunzip_head(ByteView bytes, std::size_t most);

}  // namespace windlass::exporter
