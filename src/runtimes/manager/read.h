// Look-ups in a code manager's table, as bpf/windlass_code_layout.h has them: a template over how its bytes are read.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "windlass/jit/code_manager.h"
#include "windlass/walk.h"
#include "windlass_code_layout.h"

namespace windlass {

// The inner side of a reader, for this folder.
struct CodeTableAccess {
  using Table = CodeManagerReader::Table;
  static const Table& table(const CodeManagerReader& reader) { return reader.table_; }
  static const Memory* memory(const CodeManagerReader& reader) { return reader.memory_; }
  static std::uint64_t address(const CodeManagerReader& reader) { return reader.address_; }
  static const std::byte* mapping(const CodeManagerReader& reader) { return reader.mapping_; }
  static CodeManagerReader make(const Table& table, const Memory* memory, std::uint64_t address,
                                const std::byte* mapping) {
    return {table, memory, address, mapping};
  }
};

namespace manager {

using TableHeader = CodeTableAccess::Table;

// A block or a record as it is in memory, in words that stay in registers.
struct BlockWord {
  std::uint64_t word = 0;
  [[nodiscard]] std::uint32_t map() const { return static_cast<std::uint32_t>(word); }
  [[nodiscard]] std::uint32_t first() const { return static_cast<std::uint32_t>(word >> 32); }
};
struct RecordWords {
  std::uint64_t place = 0, about = 0;
  [[nodiscard]] std::uint32_t begin() const { return static_cast<std::uint32_t>(place); }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(place >> 32); }
  [[nodiscard]] std::uint32_t shape() const { return static_cast<std::uint32_t>(about); }
  [[nodiscard]] std::uint32_t user() const { return static_cast<std::uint32_t>(about >> 32); }
};

// A table in the reader's memory, which others change meanwhile. Acquire loads keep the order that the layout asks for.
class MappedBytes {
 public:
  MappedBytes(const std::byte* at, std::uint64_t size) : at_(at), size_(size) {}
  // For the header, the blocks and the records. These are 8-aligned and inside of the table: open() has checked the
  // blocks, and the caller checks numbers of records.
  [[nodiscard, gnu::always_inline]] bool read(std::uint64_t offset, std::uint64_t& to) const {
    to = word(offset);
    return true;
  }
  [[nodiscard, gnu::always_inline]] bool read(std::uint64_t offset, BlockWord& to) const {
    return read(offset, to.word);
  }
  [[nodiscard, gnu::always_inline]] bool read(std::uint64_t offset, RecordWords& to) const {
    to = {word(offset), word(offset + 8)};
    return true;
  }
  // What is 4-aligned, and of a multiple of 4 bytes.
  template <typename T>
  [[nodiscard]] bool read(std::uint64_t offset, T& to) const {
    return read(offset, &to, sizeof to);
  }
  [[nodiscard]] bool read(std::uint64_t offset, void* to, std::size_t size) const {
    if (!holds(offset, size)) return false;
    for (std::size_t done = 0; done < size; done += sizeof(std::uint32_t)) {
      const std::uint32_t word =
          __atomic_load_n(reinterpret_cast<const std::uint32_t*>(at_ + offset + done), __ATOMIC_ACQUIRE);
      std::memcpy(static_cast<std::byte*>(to) + done, &word, sizeof word);
    }
    return true;
  }
  [[nodiscard]] const std::byte* view(std::uint64_t offset) const { return at_ + offset; }

 private:
  [[nodiscard]] bool holds(std::uint64_t offset, std::size_t size) const {
    return offset <= size_ && size <= size_ - offset;
  }
  [[nodiscard]] std::uint64_t word(std::uint64_t offset) const {
    return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(at_ + offset), __ATOMIC_ACQUIRE);
  }
  const std::byte* at_;
  std::uint64_t size_;
};

// A table in memory that can only be copied from.
class RemoteBytes {
 public:
  RemoteBytes(const Memory& memory, std::uint64_t address, std::uint64_t size)
      : memory_(memory), address_(address), size_(size) {}
  template <typename T>
  [[nodiscard]] bool read(std::uint64_t offset, T& to) const {
    return read(offset, &to, sizeof to);
  }
  bool read(std::uint64_t offset, void* to, std::size_t size) const {
    return offset <= size_ && size <= size_ - offset && memory_.read(address_ + offset, to, size);
  }
  [[nodiscard]] static const std::byte* view(std::uint64_t) { return nullptr; }

 private:
  const Memory& memory_;
  std::uint64_t address_;
  std::uint64_t size_;
};

// ---- the look-up --------------------------------------------------------------------------------------------------

enum class Looked : std::uint8_t { kFound, kNone, kUnreadable, kBadPlace, kBadRow, kNoRoom, kChanging };

[[nodiscard]] Failure failed(Looked looked, std::uint64_t address);

template <typename Bytes>
[[nodiscard, gnu::always_inline]] inline Looked read_block(const Bytes& bytes, const TableHeader& table,
                                                           std::uint32_t number, BlockWord& to) {
  return bytes.read(table.blocks + std::uint64_t{number} * sizeof to, to) ? Looked::kFound : Looked::kUnreadable;
}

template <typename Bytes>
[[nodiscard, gnu::always_inline]] inline Looked read_record(const Bytes& bytes, const TableHeader& table,
                                                            std::uint32_t number, RecordWords& to) {
  if (number >= table.record_count) [[unlikely]]
    return Looked::kBadPlace;
  return bytes.read(table.records + std::uint64_t{number} * sizeof to, to) ? Looked::kFound : Looked::kUnreadable;
}

// The records of the functions that begin in a block, ascending.
struct Run {
  std::uint32_t first = 0, count = 0;
};

template <typename Bytes>
[[nodiscard, gnu::always_inline]] inline Looked run_of(const Bytes& bytes, const TableHeader& table, BlockWord block,
                                                       Run& to) {
  to = {block.first(), wl_code_begin_in_block(block.map())};
  if (block.map() != WL_CODE_CROWDED) [[likely]]
    return Looked::kFound;
  RecordWords head;
  const Looked looked = read_record(bytes, table, block.first(), head);
  to = {block.first() + 1, std::min(head.size(), WL_CODE_MAX_RUN)};
  return looked;
}

// How many of the functions that begin in a block begin at or before an offset in it.
template <typename Bytes>
[[nodiscard, gnu::always_inline]] inline Looked begun(const Bytes& bytes, const TableHeader& table, BlockWord block,
                                                      std::uint32_t offset, Run& to) {
  std::uint32_t low = 0, high;
  if (block.map() != WL_CODE_CROWDED) [[likely]] {
    to.first = block.first();
    low = wl_code_begin_before(block.map(), offset);
    high = low + wl_code_begin_in_bucket(block.map(), offset);
  } else {
    const Looked looked = run_of(bytes, table, block, to);
    if (looked != Looked::kFound) return looked;
    high = to.count;
  }
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    RecordWords record;
    const Looked looked = read_record(bytes, table, to.first + middle, record);
    if (looked != Looked::kFound) [[unlikely]]
      return looked;
    if (record.begin() <= offset) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  to.count = low;
  return Looked::kFound;
}

// The number of the record whose function reaches into a block's begin, if one does; 0: none.
template <typename Bytes>
[[nodiscard]] inline Looked reaching_into(const Bytes& bytes, const TableHeader& table, std::uint32_t block,
                                          BlockWord word, std::uint32_t& number) {
  number = word.first();
  if (word.map() == 0) return Looked::kFound;
  Run run;
  if (const Looked looked = read_block(bytes, table, block - 1, word); looked != Looked::kFound) return looked;
  if (const Looked looked = run_of(bytes, table, word, run); looked != Looked::kFound) return looked;
  number = run.count != 0 ? run.first + run.count - 1 : run.first;
  return Looked::kFound;
}

// The record of the function that contains an offset, and its number.
template <typename Bytes>
[[nodiscard, gnu::always_inline]] inline Looked look_up_offset(const Bytes& bytes, const TableHeader& table,
                                                               std::uint32_t offset, RecordWords& record,
                                                               std::uint32_t& number) {
  const std::uint32_t block = wl_code_block_of(offset);
  BlockWord word;
  Run before;
  if (const Looked looked = read_block(bytes, table, block, word); looked != Looked::kFound) return looked;
  if (const Looked looked = begun(bytes, table, word, offset, before); looked != Looked::kFound) return looked;
  number = before.first + before.count - 1;
  if (before.count == 0) {
    std::uint32_t reaching;
    const Looked looked = reaching_into(bytes, table, block, word, reaching);
    if (looked != Looked::kFound) return looked;
    number = reaching;
    if (number == 0) return Looked::kNone;
  }
  if (const Looked looked = read_record(bytes, table, number, record); looked != Looked::kFound) return looked;
  return record.begin() <= offset && offset - record.begin() < record.size() ? Looked::kFound : Looked::kNone;
}

struct FoundRecord {
  RecordWords record;
  std::uint32_t number = 0;     // 0: of the past
  std::uint32_t past_name = 0;  // its name's place, if it is
};

template <typename Bytes>
[[nodiscard, gnu::always_inline]] inline Looked look_up(const Bytes& bytes, const TableHeader& table,
                                                        std::uint64_t address, FoundRecord& found) {
  if (address < table.begin || address >= table.end) return Looked::kNone;
  return look_up_offset(bytes, table, static_cast<std::uint32_t>(address - table.begin), found.record, found.number);
}

// ---- rows ---------------------------------------------------------------------------------------------------------

struct RowPlace {
  std::uint32_t begin = 0, end = 0;  // counted from the function's begin
  std::uint64_t full = 0;            // in the table; 0: nothing is known here
  wl_rule rule = {};
  std::uint8_t x_reg = WL_NO_XREG;
};

// The row in force `inside` bytes behind the function's begin.
template <typename Bytes>
[[nodiscard]] Looked find_row(const Bytes& bytes, const TableHeader& table, const RecordWords& record,
                              std::uint32_t inside, RowPlace& place) {
  wl_code_shape shape;
  if (record.shape() == 0) return Looked::kNone;
  if (!wl_code_has_shape(table.shape_bytes, record.shape())) return Looked::kBadPlace;
  const std::uint64_t at = table.shapes + record.shape();
  if (!bytes.read(at, shape)) return Looked::kUnreadable;
  if (!wl_code_is_shape(&shape, table.shape_bytes, record.shape())) return Looked::kBadPlace;
  const std::uint64_t rows = at + sizeof shape;
  std::uint32_t low = 0, high = shape.row_count;
  wl_code_row row;
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (!bytes.read(rows + middle * sizeof row, row.at)) return Looked::kUnreadable;
    (wl_code_row_begin(row.at, record.size()) <= inside ? low : high) = middle;
  }
  if (!bytes.read(rows + low * sizeof row, row)) return Looked::kUnreadable;
  place.begin = wl_code_row_begin(row.at, record.size());
  place.end = record.size();
  if (low + 1 < shape.row_count) {
    std::uint32_t next;
    if (!bytes.read(rows + (low + 1) * sizeof row, next)) return Looked::kUnreadable;
    place.end = wl_code_row_begin(next, record.size());
  }
  if (!wl_code_has_full(&shape, row.full)) return Looked::kBadPlace;
  if (place.begin > inside || place.end <= inside) return Looked::kBadPlace;  // rows that do not ascend
  place.full = row.full != 0 ? at + row.full : 0;
  place.rule = row.rule;
  place.x_reg = shape.x_reg;
  return Looked::kFound;
}

// ---- while others write -------------------------------------------------------------------------------------------

// Calls `look`, which gives a Looked, until nothing was taken away meanwhile.
template <typename Bytes, typename Look>
[[nodiscard]] Looked consistently(const Bytes& bytes, Look&& look) {
  constexpr std::uint64_t kRecycled = offsetof(wl_code_header, recycled);
  for (std::uint32_t attempt = 0; attempt < WL_CODE_RETRIES; ++attempt) {
    std::uint64_t before, after;
    if (!bytes.read(kRecycled, before)) return Looked::kUnreadable;
    const Looked looked = look();
    if (!bytes.read(kRecycled, after)) return Looked::kUnreadable;
    if (before == after) [[likely]]
      return looked;
  }
  return Looked::kChanging;
}

template <typename With>
[[nodiscard, gnu::noinline]] auto with_remote_bytes(const CodeManagerReader& reader, With&& with) {
  return with(RemoteBytes(*CodeTableAccess::memory(reader), CodeTableAccess::address(reader),
                          CodeTableAccess::table(reader).size));
}

// The result of `with(bytes)` for the bytes of a reader. Mapped bytes are read in place, and need fewer registers than
// the other case. The result is a variable of `with`. So the other case, which is a call, does not need its address.
template <typename With>
[[nodiscard, gnu::always_inline]] inline auto with_bytes(const CodeManagerReader& reader, With&& with) {
  if (CodeTableAccess::memory(reader) != nullptr) [[unlikely]]
    return with_remote_bytes(reader, with);
  return with(MappedBytes(CodeTableAccess::mapping(reader), CodeTableAccess::table(reader).size));
}

// The rule for trace walks at an address, and the register its extra part is about. Errors: as row_at().
struct FoundRule {
  wl_rule rule;
  std::uint8_t x_reg;
};
[[nodiscard]] Expected<FoundRule> rule_at(const CodeManagerReader& reader, std::uint64_t address);

}  // namespace manager
}  // namespace windlass
