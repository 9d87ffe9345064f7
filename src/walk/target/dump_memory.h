// Memory of a dump: pieces of its file, and of the files that were mapped where the dump leaves pages out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "walk/target/modules.h"
#include "windlass/walk.h"

namespace windlass::walk {

struct MemoryPiece {
  std::uint64_t begin = 0;
  ByteView bytes;
};

// Immutable once filled, so thread-safe; reads without system calls.
class DumpMemory final : public Memory {
 public:
  explicit DumpMemory(MappedFile dump) : dump_(std::move(dump)) {}
  [[nodiscard]] ByteView dump() const { return dump_.bytes(); }

  // Views into the dump. Where pieces overlap, the one that begins first counts, of these the longest.
  void set_pieces(std::vector<MemoryPiece> pieces);
  // What is read where no piece has a byte; disjoint. A file that cannot be opened is left out.
  void add_files(std::span<const FileRange> ranges);

  [[nodiscard]] bool read(std::uint64_t address, void* to, std::size_t size) const override;

 private:
  // The bytes from `address` on, as far as they are in one place.
  [[nodiscard]] static ByteView rest_of(const std::vector<MemoryPiece>& pieces, std::uint64_t address);

  MappedFile dump_;
  std::vector<MemoryPiece> pieces_;       // by begin
  std::vector<MemoryPiece> file_pieces_;  // by begin
  std::unordered_map<std::string, MappedFile> files_;
};

}  // namespace windlass::walk
