#include "runtimes/mono/code_map.h"

#include <algorithm>
#include <array>

#include "runtimes/memory_reader.h"

namespace windlass::runtimes::mono {
namespace {

struct Table {
  std::uint64_t domain;
  std::uint32_t chunks, valid;
};
struct Chunk {
  static constexpr std::uint32_t kMost = 64;
  std::uint32_t references, elements;
  std::uint64_t end;  // of its last element's code
  std::uint64_t tombstone;
};
static_assert(sizeof(Table) == 16 && sizeof(Chunk) == 24);

constexpr Error kTorn{ErrorCode::kMalformed, "the runtime's table of methods has no order"};

}  // namespace

// The domain's first pointer to a table that points back: that of its AOT modules follows behind (domain-internals.h).
Expected<std::uint64_t> CodeMap::table_of(const Memory& memory) {
  const auto domain = read_value<std::uint64_t>(memory, layout_.root_domain);
  if (!domain) return fail(ErrorCode::kUnreadable, "the root domain cannot be read", layout_.root_domain);
  if (*domain == 0) return fail(ErrorCode::kNotFound, "the runtime has no domain yet", layout_.root_domain);
  constexpr std::uint32_t kLargestDomain = 1024;
  const auto is_table = [&](std::uint64_t at) {
    const auto table = read_value<Table>(memory, at);
    return table && table->domain == *domain && table->chunks - 1 < kMaxChunks;
  };
  for (std::uint32_t field = table_field_ != 0 ? table_field_ : 8; field < kLargestDomain; field += 8) {
    const auto at = read_value<std::uint64_t>(memory, *domain + field);
    if (!at) break;
    if (*at % 8 == 0 && *at != 0 && is_table(*at)) {
      table_field_ = field;
      return *at;
    }
    if (table_field_ != 0) break;
  }
  return fail(ErrorCode::kNotFound, "the root domain has no table of methods", *domain);
}

Expected<CodeBlock> CodeMap::read_block(const Memory& memory, std::uint64_t info) const {
  const auto begin = read_value<std::uint64_t>(memory, info + layout_.code_start);
  const auto size = read_value<std::uint32_t>(memory, info + layout_.code_size);
  const auto kind = read_value<std::uint8_t>(memory, info + layout_.kind_byte);
  const auto method = read_value<std::uint64_t>(memory, info);
  if (!begin || !size || !kind || !method) return fail(ErrorCode::kUnreadable, "a method cannot be read", info);
  if (*size > kMaxCode || *begin + *size < *begin)
    return fail(ErrorCode::kMalformed, "a method's code has no size that methods have", info, *size);
  return CodeBlock{*begin, *begin + *size, info, *method, (*kind & layout_.trampoline_bit) != 0};
}

Expected<CodeBlock> CodeMap::find(const Memory& memory, std::uint64_t pc) {
  const auto table = table_of(memory);
  if (!table) return Failure(table.error());
  const auto header = read_value<Table>(memory, *table);
  if (!header || header->chunks > kMaxChunks) return Failure(kTorn);
  const auto chunk_at = [&](std::uint32_t number, Chunk& to) -> std::uint64_t {
    const auto at = read_value<std::uint64_t>(memory, *table + sizeof(Table) + std::uint64_t{number} * 8);
    return at && memory.read(*at, &to, sizeof to) && to.elements <= Chunk::kMost ? *at : 0;
  };
  Chunk chunk{};
  std::uint32_t low = 0, high = header->chunks;
  while (low < high) {
    const std::uint32_t middle = (low + high) / 2;
    if (chunk_at(middle, chunk) == 0) return Failure(kTorn);
    if (pc < chunk.end)
      high = middle;
    else
      low = middle + 1;
  }
  unsigned tombstones = 0;
  for (std::uint32_t number = low; number < header->chunks; ++number) {
    const std::uint64_t at = chunk_at(number, chunk);
    std::array<std::uint64_t, Chunk::kMost> infos{};
    if (at == 0 || !memory.read(at + sizeof chunk, infos.data(), chunk.elements * sizeof infos[0]))
      return Failure(kTorn);
    std::uint32_t first = 0, last = number == low ? chunk.elements : 0;
    while (first < last) {
      const std::uint32_t middle = (first + last) / 2;
      const auto block = read_block(memory, infos[middle]);
      if (!block) return block;
      if (pc < block->end)
        last = middle;
      else
        first = middle + 1;
    }
    for (; first < chunk.elements; ++first) {
      const auto block = read_block(memory, infos[first]);
      if (!block) return block;
      if (block->method == 0) {
        if (++tombstones > kMaxTombstones) return Failure(kTorn);
        continue;
      }
      if (pc >= block->begin && pc < block->end) return block;
      if (pc < block->begin) return fail(ErrorCode::kNotFound, "no method contains the address", pc);
    }
  }
  return fail(ErrorCode::kNotFound, "no method contains the address", pc);
}

bool CodeMap::is_still(const Memory& memory, const CodeBlock& block) const {
  const auto now = read_block(memory, block.info);
  // Of a process that has ended, what was there last.
  return !now ? now.error().code == ErrorCode::kUnreadable : *now == block;
}

}  // namespace windlass::runtimes::mono
