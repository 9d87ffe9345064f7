// The container of a PDB file: streams that lie in blocks all over the file (MSF 7.00). Reads hostile bytes: every
// block number and size is checked against the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "windlass/bytes.h"

namespace windlass::pdb {

// The bytes of a stream, read where they lie. A view of the MsfFile, which must outlive it and stay where it is.
class Stream {
 public:
  Stream() = default;
  Stream(ByteView file, std::uint32_t block_size, std::span<const std::uint32_t> blocks, std::uint32_t size)
      : file_(file), block_size_(block_size), blocks_(blocks), size_(size) {}

  [[nodiscard]] std::uint32_t size() const { return size_; }
  // Copies the bytes from `offset` on. Errors: kOutOfRange.
  [[nodiscard]] Expected<void> read(std::uint64_t offset, std::span<std::byte> to) const;
  template <typename T>
  [[nodiscard]] Expected<T> at(std::uint64_t offset) const {
    T value;
    const auto done = read(offset, std::as_writable_bytes(std::span(&value, 1)));
    if (!done) return Failure(done.error());
    return value;
  }
  // A string that a NUL or the end of the stream ends, and that is cut at `limit`.
  [[nodiscard]] std::string string_at(std::uint64_t offset, std::size_t limit = 4096) const;
  // The bytes [offset, offset + size) in one piece: where they lie, or copied into `copy`.
  [[nodiscard]] Expected<ByteView> bytes(std::uint64_t offset, std::uint64_t size, std::vector<std::byte>& copy) const;

 private:
  // From `offset` to the end of its block.
  [[nodiscard]] ByteView rest_of_block(std::uint64_t offset) const;
  [[nodiscard]] bool is_contiguous(std::uint64_t offset, std::uint64_t size) const;

  ByteView file_;
  std::uint32_t block_size_ = 1;
  std::span<const std::uint32_t> blocks_;  // each is in the file
  std::uint32_t size_ = 0;
};

class MsfFile {
 public:
  // Keeps the list of all blocks: 4 bytes for each. Errors: kUnsupported with a sentence that names the other kind of
  // file; kMalformed, kTruncated, kOutOfRange.
  [[nodiscard]] static Expected<MsfFile> parse(ByteView file);

  [[nodiscard]] std::uint32_t stream_count() const { return static_cast<std::uint32_t>(streams_.size()); }
  // Empty if there is no such stream.
  [[nodiscard]] Stream stream(std::uint32_t number) const;

 private:
  struct Extent {
    std::uint32_t size, first_block;
  };
  Expected<void> read_directory(std::uint32_t size, std::uint32_t map_block);
  Expected<void> read_streams(std::uint32_t size);

  ByteView file_;
  std::uint32_t block_size_ = 0;
  std::uint32_t block_count_ = 0;
  std::vector<std::uint32_t> directory_;  // the stream directory as stored
  std::vector<Extent> streams_;
};

}  // namespace windlass::pdb
