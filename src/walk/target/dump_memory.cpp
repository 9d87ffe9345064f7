#include "walk/target/dump_memory.h"

#include <algorithm>
#include <cstring>

namespace windlass::walk {
namespace {

void sort_pieces(std::vector<MemoryPiece>& pieces) {
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const MemoryPiece& a, const MemoryPiece& b) { return a.begin < b.begin; });
}

}  // namespace

void DumpMemory::set_pieces(std::vector<MemoryPiece> pieces) {
  std::stable_sort(pieces.begin(), pieces.end(), [](const MemoryPiece& a, const MemoryPiece& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.bytes.size() > b.bytes.size();
  });
  pieces_.clear();
  std::uint64_t end = 0;  // of what is there already
  for (MemoryPiece& piece : pieces) {
    const std::uint64_t known = piece.begin < end ? end - piece.begin : 0;
    if (known >= piece.bytes.size()) continue;
    pieces_.push_back({piece.begin + known, *piece.bytes.sub(known, piece.bytes.size() - known)});
    end = piece.begin + piece.bytes.size();
  }
}

void DumpMemory::add_files(std::span<const FileRange> ranges) {
  for (const FileRange& range : ranges) {
    auto [entry, is_new] = files_.try_emplace(range.file);
    if (is_new)
      if (auto file = MappedFile::open(range.file)) entry->second = std::move(*file);
    const ByteView bytes = entry->second.bytes();
    if (range.offset >= bytes.size() || range.begin >= range.end) continue;
    const std::uint64_t size = std::min(range.end - range.begin, bytes.size() - range.offset);
    file_pieces_.push_back({range.begin, *bytes.sub(range.offset, size)});
  }
  sort_pieces(file_pieces_);
}

ByteView DumpMemory::rest_of(const std::vector<MemoryPiece>& pieces, std::uint64_t address) {
  const auto behind = std::upper_bound(pieces.begin(), pieces.end(), address,
                                       [](std::uint64_t a, const MemoryPiece& piece) { return a < piece.begin; });
  if (behind == pieces.begin() || address - behind[-1].begin >= behind[-1].bytes.size()) return {};
  const std::uint64_t from = address - behind[-1].begin;
  std::uint64_t size = behind[-1].bytes.size() - from;
  if (behind != pieces.end()) size = std::min(size, behind->begin - address);
  return *behind[-1].bytes.sub(from, size);
}

bool DumpMemory::read(std::uint64_t address, void* to, std::size_t size) const {
  if (address > ~std::uint64_t{0} - size) return false;
  for (auto* out = static_cast<std::byte*>(to); size > 0;) {
    ByteView found = rest_of(pieces_, address);
    if (found.empty()) {
      found = rest_of(file_pieces_, address);
      // The dump's own bytes count where they begin again.
      const auto next = std::upper_bound(pieces_.begin(), pieces_.end(), address,
                                         [](std::uint64_t a, const MemoryPiece& piece) { return a < piece.begin; });
      if (!found.empty() && next != pieces_.end() && next->begin - address < found.size())
        found = *found.sub(0, next->begin - address);
    }
    if (found.empty()) return false;
    const std::size_t piece = std::min(size, found.size());
    std::memcpy(out, found.data(), piece);
    out += piece;
    address += piece;
    size -= piece;
  }
  return true;
}

}  // namespace windlass::walk
