#include "formats/pdb/msf.h"

#include <algorithm>
#include <bit>

#include "formats/pdb/format.h"

namespace windlass::pdb {
namespace {

constexpr std::uint32_t kNilStream = 0xffff'ffff;  // the size of a stream that was removed

bool begins_with(ByteView file, std::string_view magic) {
  return file.size() >= magic.size() && std::memcmp(file.data(), magic.data(), magic.size()) == 0;
}

Expected<void> check_magic(ByteView file) {
  if (begins_with(file, kMsfMagic)) return {};
  if (begins_with(file, kOldMsfMagic)) return fail(ErrorCode::kUnsupported, "PDB of a format before 1998", 0);
  if (begins_with(file, kCompressedMagic)) return fail(ErrorCode::kUnsupported, "compressed PDB file (MSFZ)", 0);
  if (begins_with(file, kPortableMagic)) return fail(ErrorCode::kUnsupported, "portable PDB of .NET", 0);
  return fail(ErrorCode::kUnsupported, "not a PDB file", 0);
}

std::uint64_t blocks_for(std::uint64_t size, std::uint32_t block_size) { return (size + block_size - 1) / block_size; }

}  // namespace

ByteView Stream::rest_of_block(std::uint64_t offset) const {
  const std::uint64_t within = offset % block_size_;
  const std::uint64_t begin = std::uint64_t{blocks_[offset / block_size_]} * block_size_;
  return *file_.sub(begin + within, block_size_ - within);
}

Expected<void> Stream::read(std::uint64_t offset, std::span<std::byte> to) const {
  if (offset > size_ || to.size() > size_ - offset)
    return fail(ErrorCode::kOutOfRange, "value reaches past the end of its PDB stream", offset, to.size());
  while (!to.empty()) {
    const ByteView from = rest_of_block(offset);
    const std::size_t count = std::min(from.size(), to.size());
    std::memcpy(to.data(), from.data(), count);
    to = to.subspan(count);
    offset += count;
  }
  return {};
}

std::string Stream::string_at(std::uint64_t offset, std::size_t limit) const {
  std::string text;
  while (offset < size_ && text.size() < limit) {
    const ByteView from = rest_of_block(offset);
    const auto there = std::min<std::uint64_t>({from.size(), size_ - offset, limit - text.size()});
    const std::string_view piece(reinterpret_cast<const char*>(from.data()), there);
    const std::size_t end = piece.find('\0');
    text += piece.substr(0, end);
    if (end != std::string_view::npos) break;
    offset += there;
  }
  return text;
}

bool Stream::is_contiguous(std::uint64_t offset, std::uint64_t size) const {
  const std::uint64_t last = (offset + size - 1) / block_size_;
  for (std::uint64_t i = offset / block_size_; i < last; ++i)
    if (blocks_[i] + 1 != blocks_[i + 1]) return false;
  return true;
}

Expected<ByteView> Stream::bytes(std::uint64_t offset, std::uint64_t size, std::vector<std::byte>& copy) const {
  if (offset > size_ || size > size_ - offset)
    return fail(ErrorCode::kOutOfRange, "range reaches past the end of its PDB stream", offset, size);
  if (size == 0) return ByteView();
  if (is_contiguous(offset, size))
    return file_.sub(std::uint64_t{blocks_[offset / block_size_]} * block_size_ + offset % block_size_, size);
  copy.resize(size);
  if (const auto done = read(offset, copy); !done) return Failure(done.error());
  return ByteView(copy.data(), copy.size());
}

Expected<MsfFile> MsfFile::parse(ByteView file) {
  if (const auto known = check_magic(file); !known) return Failure(known.error());
  const auto super = file.at<SuperBlock>(kMsfMagic.size());
  if (!super) return Failure(super.error());
  if (!std::has_single_bit(super->block_size) || super->block_size < 512 || super->block_size > 65536)
    return fail(ErrorCode::kMalformed, "PDB has blocks of an impossible size", kMsfMagic.size(), super->block_size);
  MsfFile made;
  made.file_ = file;
  made.block_size_ = super->block_size;
  // The file may be cut: then the streams that have blocks behind its end are refused.
  made.block_count_ =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(super->block_count, file.size() / super->block_size));
  if (const auto read = made.read_directory(super->directory_size, super->directory_map); !read)
    return Failure(read.error());
  if (const auto read = made.read_streams(super->directory_size); !read) return Failure(read.error());
  return made;
}

Expected<void> MsfFile::read_directory(std::uint32_t size, std::uint32_t map_block) {
  // A list of all streams' blocks is smaller than these blocks.
  if (size % 4 != 0 || size > file_.size())
    return fail(ErrorCode::kMalformed, "PDB directory has an impossible size", 0, size);
  const std::uint64_t count = blocks_for(size, block_size_);
  const auto map = file_.sub(std::uint64_t{map_block} * block_size_, count * 4);
  if (!map) return Failure(map.error());
  std::vector<std::uint32_t> blocks(count);
  if (count != 0) std::memcpy(blocks.data(), map->data(), count * 4);
  if (std::ranges::any_of(blocks, [&](std::uint32_t block) { return block >= block_count_; }))
    return fail(ErrorCode::kOutOfRange, "PDB directory lies outside of the file", map->origin());
  directory_.resize(size / 4);
  return Stream(file_, block_size_, blocks, size).read(0, std::as_writable_bytes(std::span(directory_)));
}

Expected<void> MsfFile::read_streams(std::uint32_t size) {
  const std::uint64_t words = directory_.size();
  if (words == 0 || directory_[0] > words - 1)
    return fail(ErrorCode::kMalformed, "PDB directory lists more streams than it has room for", 0, size);
  std::uint64_t next = 1 + std::uint64_t{directory_[0]};
  for (std::uint32_t i = 0; i < directory_[0]; ++i) {
    const std::uint32_t stored = directory_[1 + i];
    const std::uint32_t of_stream = stored == kNilStream ? 0 : stored;
    const std::uint64_t count = blocks_for(of_stream, block_size_);
    if (count > words - next)
      return fail(ErrorCode::kMalformed, "PDB directory ends within the blocks of a stream", i, of_stream);
    streams_.push_back({of_stream, static_cast<std::uint32_t>(next)});
    next += count;
  }
  return {};
}

Stream MsfFile::stream(std::uint32_t number) const {
  if (number >= streams_.size()) return {};
  const Extent& extent = streams_[number];
  const auto blocks = std::span(directory_).subspan(extent.first_block, blocks_for(extent.size, block_size_));
  // A stream larger than its file uses blocks twice.
  if (extent.size > file_.size()) return {};
  if (std::ranges::any_of(blocks, [&](std::uint32_t block) { return block >= block_count_; })) return {};
  return {file_, block_size_, blocks, extent.size};
}

}  // namespace windlass::pdb
