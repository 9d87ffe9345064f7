// gzip streams through zlib, both ways.
#pragma once

#include <zlib.h>

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

[[nodiscard]] bool is_gzip(ByteView bytes);
// All members of a gzip file (RFC 1952 allows several); kLimit past `max_bytes`, kMalformed or kTruncated naming the
// offset in the compressed bytes.
[[nodiscard]] Expected<PageBuffer> gunzip(ByteView bytes, std::uint64_t max_bytes);
// The first `most` bytes of what a gzip file holds; fewer if it ends, or is damaged.
[[nodiscard]] std::string gunzip_head(ByteView bytes, std::size_t most);

}  // namespace windlass::exporter
