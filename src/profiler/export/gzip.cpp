#include "profiler/export/gzip.h"

#include <algorithm>

namespace windlass::exporter {

namespace {
constexpr int kGzipWindow = 15 + 16;  // zlib.h: 16 added to windowBits = gzip header and trailer
constexpr int kLevel = 4;             // measured on profiles: a third of level 6's time for 5% more bytes
}  // namespace

GzipWriter::GzipWriter(TextWriter& out) : out_(out), buffer_(64 * 1024, '\0') {
  ready_ = deflateInit2(&stream_, kLevel, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) == Z_OK;
}

GzipWriter::~GzipWriter() {
  if (ready_) deflateEnd(&stream_);
}

void GzipWriter::deflate_all(std::string_view bytes, int flush) {
  if (!ready_) return;
  stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  std::size_t left = bytes.size();
  do {
    stream_.avail_in = static_cast<uInt>(std::min<std::size_t>(left, 1u << 30));
    left -= stream_.avail_in;
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(buffer_.data());
      stream_.avail_out = static_cast<uInt>(buffer_.size());
      deflate(&stream_, left == 0 ? flush : Z_NO_FLUSH);
      out_.text({buffer_.data(), buffer_.size() - stream_.avail_out});
    } while (stream_.avail_out == 0);
  } while (left != 0);
}

Expected<void> GzipWriter::finish() {
  if (!ready_) return fail(ErrorCode::kSystem, "cannot start compression (out of memory)", 0, ENOMEM);
  deflate_all({}, Z_FINISH);
  return out_.finish();
}

bool is_gzip(ByteView bytes) { return bytes.size() >= 2 && bytes.u8()[0] == 0x1f && bytes.u8()[1] == 0x8b; }

namespace {
// RFC 1952: the file ends in the size modulo 2^32. Only a hint, and profiles shrink less than 64:1.
std::size_t expected_size(ByteView bytes, std::uint64_t max_bytes) {
  const auto said = bytes.size() < 18 ? Expected<std::uint32_t>(0u) : bytes.at<std::uint32_t>(bytes.size() - 4);
  return static_cast<std::size_t>(
      std::min({std::uint64_t{*said} + 1, max_bytes + 1, std::uint64_t{bytes.size()} * 64}));
}
}  // namespace

Expected<PageBuffer> gunzip(ByteView bytes, std::uint64_t max_bytes) {
  const auto no_memory = [] {
    return fail(ErrorCode::kSystem, "cannot start decompression (out of memory)", 0, ENOMEM);
  };
  z_stream stream{};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK) return no_memory();
  struct End {
    z_stream* stream;
    ~End() { inflateEnd(stream); }
  } end{&stream};

  PageBuffer result;
  if (!result.reserve(expected_size(bytes, max_bytes))) return no_memory();
  std::size_t used = 0, taken = 0;
  for (;;) {
    if (used == result.capacity() && !result.reserve(std::min(used * 2, static_cast<std::size_t>(max_bytes) + 1)))
      return no_memory();
    stream.next_in = const_cast<Bytef*>(bytes.u8() + taken);
    stream.avail_in = static_cast<uInt>(std::min<std::size_t>(bytes.size() - taken, 1u << 30));
    stream.next_out = reinterpret_cast<Bytef*>(result.data() + used);
    stream.avail_out = static_cast<uInt>(std::min<std::size_t>(result.capacity() - used, 1u << 30));
    const uInt in_before = stream.avail_in, out_before = stream.avail_out;
    const int status = inflate(&stream, Z_NO_FLUSH);
    taken += in_before - stream.avail_in;
    used += out_before - stream.avail_out;
    if (used > max_bytes)
      return fail(ErrorCode::kLimit, "uncompressed profile is larger than the limit", taken, max_bytes);
    if (status == Z_STREAM_END) {
      if (taken == bytes.size() || !is_gzip(*bytes.sub(taken, bytes.size() - taken))) break;  // trailing bytes: ignored
      inflateReset(&stream);
    } else if (status == Z_BUF_ERROR || (status == Z_OK && taken == bytes.size() && stream.avail_out != 0)) {
      return fail(ErrorCode::kTruncated, "compressed profile ends early", taken);
    } else if (status != Z_OK) {
      return fail(ErrorCode::kMalformed, "compressed profile is damaged", taken);
    }
  }
  result.set_size(used);
  return result;
}

std::string gunzip_head(ByteView bytes, std::size_t most) {
  std::string head(most, '\0');
  z_stream stream{};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK) return {};
  stream.next_in = const_cast<Bytef*>(bytes.u8());
  stream.avail_in = static_cast<uInt>(std::min<std::size_t>(bytes.size(), 1u << 30));
  stream.next_out = reinterpret_cast<Bytef*>(head.data());
  stream.avail_out = static_cast<uInt>(most);
  (void)inflate(&stream, Z_SYNC_FLUSH);
  head.resize(most - stream.avail_out);
  inflateEnd(&stream);
  return head;
}

}  // namespace windlass::exporter
