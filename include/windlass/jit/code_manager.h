// The functions of a JIT heap: from an address to the function, its name, the runtime's own number, and its unwind
// information.
//
// All is in a table without pointers, in a memfd. Walks of this process, signal handlers, other processes, core files
// and BPF programs read the table directly, without a lock. A copy can be kept after the process has ended. The layout
// of the table, and how to read it: bpf/windlass_code_layout.h.
//
// For example:
//
//   auto manager = CodeManager::create(heap_begin, heap_end);
//   auto seen = add_own_code(*manager);   // From here on, walks of this process see its functions.
//
// Add each function before it runs. Remove the function before its place is used again:
//
//   manager->add({{.address = pc, .size = n, .name = "f", .rows = rows}});
//   manager->remove({pc});
//
// For single ranges, each with rows of its own, see jit/code_range.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>

#include "windlass/bytes.h"
#include "windlass/error.h"
#include "windlass/frame_row.h"
#include "windlass/jit/code_range.h"
#include "windlass/jit/generated_function.h"
#include "windlass/registers.h"

namespace windlass {

class Memory;

// ---- reading ------------------------------------------------------------------------------------------------------

// A function that was found in a table.
struct FoundFunction {
  std::uint64_t begin = 0;  // The first address, in the process that owns the code.
  std::uint64_t size = 0;   // Bytes of code.
  std::uint32_t user = 0;   // The runtime's own number, as given to CodeManager::add().
  bool described = false;   // True if the function has rows.
};

// Looks functions up in a table, wherever the table is.
//
// The bytes may be anything. Every offset is checked and every loop is bounded. So a look-up in garbage is an error or
// a wrong answer, after at most 8 attempts. An attempt reads at most two blocks, a dozen records and a row.
//
// Neither locks nor allocates. Thread-safe, and signal-safe if reading the memory is. Copies are cheap, and valid as
// long as the memory that they read.
//
// Errors of all look-ups, with the address as `where`:
// - kNotFound: no function, name or row is there.
// - kLimit: functions were removed during each of the 8 attempts.
// - kMalformed, kOutOfRange, kUnreadable: this is no table, or a damaged one.
class CodeManagerReader {
 public:
  // Opens a table of another process or of a core file: of anything that has a Memory. `address` is where
  // "/memfd:windlass-code" is mapped there. `memory` must outlive the reader. While the process runs, `memory` must
  // give the present bytes. The memory of a Target keeps pages, so this holds only while the process is stopped.
  [[nodiscard]] static Expected<CodeManagerReader> open(const Memory& memory, std::uint64_t address);
  // Opens a table whose memfd is mapped here, or a copy of such a table; 8-aligned. The table may change while it is
  // read. If the memfd comes from a process that is not trusted, first check the seal (F_SEAL_SHRINK).
  // CodeManager seals its memfds.
  [[nodiscard]] static Expected<CodeManagerReader> open(std::span<const std::byte> mapping);

  [[nodiscard]] std::uint64_t begin() const { return table_.begin; }  // The first address of the code, in its process.
  [[nodiscard]] std::uint64_t end() const { return table_.end; }      // The address behind the last.
  [[nodiscard]] Architecture architecture() const { return table_.architecture; }  // Of the code.

  // The function that contains an address. Constant time: a block and a record, seldom two of each.
  [[nodiscard]] Expected<FoundFunction> find(std::uint64_t address) const;
  // The name of the function at an address, copied to `to`, and cut if longer. 64 KiB hold any name.
  [[nodiscard]] Expected<std::string_view> name(std::uint64_t address, std::span<char> to) const;
  // The row in force at an address; the row counts addresses of the process. Logarithmic in the function's rows.
  //
  // Expressions of the row are copied to `expressions`; kLimit if that is too small. For a mapped table, `expressions`
  // may be empty. The expressions are then views of the table, valid until the function is removed.
  [[nodiscard]] Expected<void> row_at(std::uint64_t address, FrameRow& to, std::span<std::byte> expressions = {}) const;

  // A reader of the table at an earlier time: nanoseconds of CLOCK_MONOTONIC. Functions that were removed since are
  // found, as far as the table still has them: see CodeManagerOptions::past. A look-up is linear in the functions
  // removed after `time`.
  [[nodiscard]] CodeManagerReader as_of(std::uint64_t time) const {
    CodeManagerReader then = *this;
    then.as_of_ = time;
    return then;
  }

 private:
  friend class CodeManager;
  friend struct CodeTableAccess;  // src/runtimes/manager/read.h

  // The header of the table, checked once.
  struct Table {
    std::uint64_t begin, end, size, blocks, records, name_of, shapes, names, past;
    std::uint32_t block_count, record_count, shape_bytes, name_bytes, past_count;
    Architecture architecture;
  };
  CodeManagerReader(const Table& table, const Memory* memory, std::uint64_t address, const std::byte* mapping)
      : table_(table), memory_(memory), address_(address), mapping_(mapping) {}

  Table table_;
  const Memory* memory_;  // Null: the table is mapped.
  std::uint64_t address_;
  const std::byte* mapping_;
  std::uint64_t as_of_ = ~std::uint64_t{0};
};

// ---- writing ------------------------------------------------------------------------------------------------------

// The room that a table reserves. A page takes memory only when it is first used.
//
// - 8 bytes for each 1024 bytes of code.
// - 16 bytes for each function; with a name 24 bytes and the name itself.
// - About 100 to 200 bytes for each distinct set of rows.
// - 32 bytes for each function that is remembered after its removal.
//
// Many changes leave free room that is not always where it can be used. So records are reserved for three times as many
// functions.
struct CodeManagerOptions {
  // The most functions at a time.
  std::uint32_t functions = 1u << 20;
  // Bytes for rows.
  std::uint32_t shape_bytes = 16u << 20;
  // Bytes for names.
  std::uint32_t name_bytes = 128u << 20;
  // The most functions that are remembered, with rows and name, after their removal: for samples taken before. The
  // oldest are forgotten first. Some are forgotten earlier if the room for rows or names runs out.
  std::uint32_t past = 1u << 16;
};

// Writes a table. Movable.
//
// Thread-safe. Changes lock and allocate: not for signal handlers. A signal handler that interrupts a
// change may read. In a forked child the table can only be read, and shows the changes of the parent. The child's own
// code needs a manager of its own.
class CodeManager {
 public:
  // Makes a manager for code of this process in [begin, end). Errors: kOutOfRange if that is over 4 GiB; kSystem
  // without a memfd or without memory; kLimit for options that are too large for any table.
  [[nodiscard]] static Expected<CodeManager> create(std::uint64_t begin, std::uint64_t end,
                                                    const CodeManagerOptions& options = {});
  CodeManager(CodeManager&&) noexcept;
  CodeManager& operator=(CodeManager&&) noexcept;
  ~CodeManager();

  // Adds functions: all, or with an error none. Call before the functions run. `where` of an error is a function's
  // address. Names and rows are copied. Functions with equal rows share a copy, even if their sizes differ: rows behind
  // the longest row may be equal by their distance from the function's end. Exceptions and lines are not kept.
  //
  // - kOutOfRange: a function is empty, 2 GiB or more, or not within the manager's code. Or its rows do not lie within
  //   the function.
  // - kMalformed: a function overlaps another function, which must be removed first (`detail`: where that begins). Or
  //   rows are not ascending. Or a prologue is impossible, or of another size than the code.
  // - kLimit: no room for functions, rows or names.
  // - kUnsupported: this is a forked child.
  Expected<void> add(std::span<const GeneratedFunction> functions) { return update({}, functions); }
  Expected<void> add(std::initializer_list<GeneratedFunction> functions) { return update({}, functions); }
  // Removes the functions that begin at these addresses. Call when they run no more. kNotFound if no function begins at
  // one of them: `where` is the first of these. The functions before are removed nevertheless.
  Expected<void> remove(std::span<const std::uint64_t> addresses) { return update(addresses, {}); }
  Expected<void> remove(std::initializer_list<std::uint64_t> addresses) { return update(addresses, {}); }
  // Removes functions and then adds others: for functions that move, or that make room for others. If the additions
  // fail, the removals stand. Errors as remove() and add().
  Expected<void> update(std::span<const std::uint64_t> removed, std::span<const GeneratedFunction> added);

  // The number of functions now.
  [[nodiscard]] std::size_t functions() const;
  // A reader of the table, valid as long as the manager. Signal-safe.
  [[nodiscard]] const CodeManagerReader& reader() const;
  // The memfd of the table, sealed against changes of its size. The manager closes it.
  [[nodiscard]] int fd() const;

  class Table;  // src/jit/table/table.h
  [[nodiscard]] const std::shared_ptr<Table>& table() const { return table_; }

 private:
  explicit CodeManager(std::shared_ptr<Table> table) : table_(std::move(table)) {}
  std::shared_ptr<Table> table_;
};

// Makes a manager's functions known to all walks of this process: the present functions and all that are added later.
// Where the manager has no function, the code is followed. A look-up takes constant time. retire_own_code() ends it;
// the manager may be destroyed earlier. Errors as add_own_code(CodeRange) in jit/code_range.h. Linux.
[[nodiscard]] Expected<CodeRangeId> add_own_code(const CodeManager& manager);
// The same by the memfd, which is mapped once more; the caller may close the memfd afterwards. For other copies of the
// library in the process, since each copy has walks of its own. Errors: kUnsupported if this is no sealed memfd;
// kSystem if it cannot be mapped; those of CodeManagerReader::open().
[[nodiscard]] Expected<CodeRangeId> add_own_managed_code(int memfd);

}  // namespace windlass
