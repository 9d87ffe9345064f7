// Maps a pc to the method or trampoline of a Mono that has it, by the table that the runtime uses to walk stacks
// itself.
//
// mono/mono, mono/metadata/jit-info.c: MonoJitInfoTable, chunks of at most 64 pointers to MonoJitInfo, ascending by the
// end of the code. Freed code leaves a tombstone, whose method is null. A writer replaces the table by a new one.
#pragma once

#include <cstdint>

#include "runtimes/mono/layout.h"
#include "windlass/walk.h"

namespace windlass::runtimes::mono {

struct CodeBlock {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t info = 0;    // MonoJitInfo
  std::uint64_t method = 0;  // MonoMethod; of a trampoline, MonoTrampInfo
  bool is_trampoline = false;
  bool operator==(const CodeBlock&) const = default;
};

class CodeMap {
 public:
  static constexpr std::uint32_t kMaxCode = 4U << 20;  // bytes of one block
  static constexpr std::uint32_t kMaxChunks = 1U << 20;
  static constexpr unsigned kMaxTombstones = 4096;  // passed in one search

  explicit CodeMap(const Layout& layout) : layout_(layout) {}

  // In the root domain, where programs run that make no others. kNotFound: nothing of its is there. Others: what is
  // wrong. Bounded by the limits above.
  [[nodiscard]] Expected<CodeBlock> find(const Memory& memory, std::uint64_t pc);
  // Is what find() gave still there?
  [[nodiscard]] bool is_still(const Memory& memory, const CodeBlock& block) const;

 private:
  [[nodiscard]] Expected<std::uint64_t> table_of(const Memory& memory);
  [[nodiscard]] Expected<CodeBlock> read_block(const Memory& memory, std::uint64_t info) const;

  Layout layout_;
  std::uint32_t table_field_ = 0;  // of the domain; 0: not found yet
};

}  // namespace windlass::runtimes::mono
