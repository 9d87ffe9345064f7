#include "walk/code_reads.h"

#include <algorithm>
#include <cstring>

namespace windlass::walk {
namespace {

constexpr std::size_t kPiece = 64;
constexpr std::uint64_t kUnreadable = 0x6e6f;

std::uint64_t digest_of_bytes(std::uint64_t hash, std::uint64_t address, const void* bytes, std::size_t size) {
  hash = mix(hash, address);
  for (std::size_t at = 0; at < size; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, static_cast<const std::byte*>(bytes) + at, std::min<std::size_t>(8, size - at));
    hash = mix(hash, word);
  }
  return hash;
}

}  // namespace

// Adds the bytes that were read to a digest, or that they cannot be read, which gives false.
bool CodeReads::add(const Read& read, const flow::CodeSource& source, std::uint64_t& digest) {
  std::byte bytes[kPiece];
  const bool is_read = read.size <= sizeof bytes && source.read(read.address, bytes, read.size);
  digest = is_read ? digest_of_bytes(digest, read.address, bytes, read.size) : mix(digest, read.address ^ kUnreadable);
  return is_read;
}

// Code is compared by pieces that begin at multiples of their size, as far as all of a piece can be read.
void CodeReads::note(const flow::CodeSource& source, std::uint64_t address, std::size_t size, bool is_read) {
  const std::uint64_t first = address & ~std::uint64_t{kPiece - 1};
  bool in_pieces = is_read;
  for (std::uint64_t piece = first; in_pieces && piece - first < address - first + size; piece += kPiece)
    in_pieces = is_noted({piece, kPiece}, source, true);
  if (!in_pieces) (void)is_noted({address, static_cast<std::uint32_t>(size)}, source, false);
}

bool CodeReads::is_noted(const Read& read, const flow::CodeSource& source, bool must_be_read) {
  // Mostly one of the last.
  if (is_too_much() || std::ranges::find(reads_.rbegin(), reads_.rend(), read) != reads_.rend()) return true;
  std::uint64_t digest = digest_;
  if (!add(read, source, digest) && must_be_read) return false;
  digest_ = digest;
  reads_.push_back(read);
  // More than a piece that cannot be read as a whole is not compared.
  if (read.size > kPiece) reads_.resize(kMost + 1);
  return true;
}

bool CodeReads::are_same(const flow::CodeSource& source) const {
  std::uint64_t digest = 0;
  for (const Read& read : reads_) (void)add(read, source, digest);
  return digest == digest_;
}

}  // namespace windlass::walk
