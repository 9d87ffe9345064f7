// A JIT heap's functions: address -> function, its name and the runtime's own number, its unwind information. One
// pointer-free table in a memfd, which the own process's walks, signal handlers, other processes, core files and BPF
// programs read as it is, without a lock and without help; it can be kept after its process is gone. The layout, and
// how it is read, is in bpf/windlass_code_layout.h.
//
//   auto manager = CodeManager::create(heap_begin, heap_end);
//   auto seen = add_own_code(*manager);                              // walks of this process see its functions, now
//   manager->add({{.address = pc, .size = n, .name = "f", .rows = rows}});   // and later: before the code runs
//   manager->remove({pc});                                           // when it runs no more, before its place is
//   reused
//
// add_own_code() for single ranges, each with rows of its own: code_range.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>

#include "windlass/bytes.h"
#include "windlass/code_range.h"
#include "windlass/error.h"
#include "windlass/frame_row.h"
#include "windlass/registers.h"

namespace windlass {

class Memory;

// ---- reading ------------------------------------------------------------------------------------------------------

struct FoundFunction {
  std::uint64_t begin = 0;  // address in the owning process
  std::uint64_t size = 0;
  std::uint32_t user = 0;  // as it was added
  bool described = false;  // it has rows
};

// Looks things up in a table, wherever it is. The bytes may be anything: every place is checked and every loop bounded,
// so that a look-up in garbage is an error or a wrong answer, after at most 8 times two blocks, a dozen records and a
// row. Neither locks nor allocates; signal-safe where reading the memory is; any number of threads at a time. Copies
// are cheap, and good as long as what they read from.
//
// Errors of all look-ups, `where` the address: kNotFound, where there is nothing; kLimit, if functions were taken away
// during each of 8 attempts; of a table that is none kMalformed, kOutOfRange and kUnreadable.
class CodeManagerReader {
 public:
  // A table in another process, a core file or whatever has memory: at `address` there, where it is mapped from
  // "/memfd:windlass-code". `memory` must outlive the reader and, while the process runs, give what is there now: of
  // a target's memory, which keeps pages, that is true while the process is stopped.
  [[nodiscard]] static Expected<CodeManagerReader> open(const Memory& memory, std::uint64_t address);
  // A table whose memfd is mapped here, or a copy of it; 8-aligned. It may change under the reader. Whoever maps a
  // memfd of a process he does not trust sees to it that it is sealed (F_SEAL_SHRINK), as CodeManager's are.
  [[nodiscard]] static Expected<CodeManagerReader> open(std::span<const std::byte> mapping);

  [[nodiscard]] std::uint64_t begin() const { return table_.begin; }  // of the code, in its process
  [[nodiscard]] std::uint64_t end() const { return table_.end; }
  [[nodiscard]] Architecture architecture() const { return table_.architecture; }

  // The function that contains an address. Constant: a block and a record, seldom a block and a record more.
  [[nodiscard]] Expected<FoundFunction> find(std::uint64_t address) const;
  // Its name, copied: cut where it is longer. 64 KiB have room for any.
  [[nodiscard]] Expected<std::string_view> name(std::uint64_t address, std::span<char> to) const;
  // The row in force, at addresses of the process. Logarithmic in the function's rows. Its expressions, if there are,
  // are copied to `expressions`; kLimit if that is too small. In mapped tables that may be empty: then they are views
  // of the table, good as long as the function stays.
  [[nodiscard]] Expected<void> row_at(std::uint64_t address, FrameRow& to, std::span<std::byte> expressions = {}) const;

  // One that answers for a moment that has passed, CLOCK_MONOTONIC in nanoseconds, when code ran: what has been taken
  // away since is there, as far as the table still has it (CodeManagerOptions::past). A look-up is linear in what was
  // taken away after that moment.
  [[nodiscard]] CodeManagerReader as_of(std::uint64_t time) const {
    CodeManagerReader then = *this;
    then.as_of_ = time;
    return then;
  }

 private:
  friend class CodeManager;
  friend struct CodeTableAccess;  // src/runtimes/manager/read.h

  // What its header says, checked once.
  struct Table {
    std::uint64_t begin, end, size, blocks, records, name_of, shapes, names, past;
    std::uint32_t block_count, record_count, shape_bytes, name_bytes, past_count;
    Architecture architecture;
  };
  CodeManagerReader(const Table& table, const Memory* memory, std::uint64_t address, const std::byte* mapping)
      : table_(table), memory_(memory), address_(address), mapping_(mapping) {}

  Table table_;
  const Memory* memory_;  // null: mapped
  std::uint64_t address_;
  const std::byte* mapping_;
  std::uint64_t as_of_ = ~std::uint64_t{0};
};

// ---- writing ------------------------------------------------------------------------------------------------------

struct ManagedFunction {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::string_view name = {};  // copied
  std::uint32_t user = 0;      // only kept
  // Its rows, at offsets from its begin: ascending, disjoint, within its size; prologue::rows_of() makes such. Copied,
  // and shared with all functions that have the same: rows behind the longest one may be at the same places from the
  // end. Where there are none, the code is followed.
  std::span<const FrameRow> rows = {};
};

// Room to reserve. Pages cost memory when they are first used: 8 bytes for 1024 of code, a function 16, with a name 24
// and the name's, distinct rows some 100 to 200 each. What many changes leave free is not always where it can be used,
// so that records are reserved for three times as many functions.
struct CodeManagerOptions {
  std::uint32_t functions = 1u << 20;
  std::uint32_t shape_bytes = 16u << 20;
  std::uint32_t name_bytes = 128u << 20;
  // Functions that were taken away and are still known, with rows and name, for samples that were taken before: 32
  // bytes each. The oldest are forgotten, also where there is no room left for rows or names.
  std::uint32_t past = 1u << 16;
};

// The one who writes. Movable. Changes take a lock and memory, so they are not for signal handlers, though these may
// interrupt them and read; thread-safe. In a forked child it can only be read, and shows what the parent does: the
// child's own code needs a manager of its own.
class CodeManager {
 public:
  // For code of the own process in [begin, end): at most 4 GiB, kOutOfRange. kSystem where there is no memfd or no
  // memory; kLimit for options that no table has room for.
  [[nodiscard]] static Expected<CodeManager> create(std::uint64_t begin, std::uint64_t end,
                                                    const CodeManagerOptions& options = {});
  CodeManager(CodeManager&&) noexcept;
  CodeManager& operator=(CodeManager&&) noexcept;
  ~CodeManager();

  // All or none of them. To be called before they run. `where` of an error is a function's address. kOutOfRange: a
  // function is empty, 2 GiB or more, or not within the manager's code; rows do not lie within their function.
  // kMalformed: it overlaps another one, which must be removed first (`detail`: where that begins); rows are not
  // ascending. kLimit: no room for functions, rows or names. kUnsupported: in a forked child.
  Expected<void> add(std::span<const ManagedFunction> functions) { return update({}, functions); }
  Expected<void> add(std::initializer_list<ManagedFunction> functions) { return update({}, functions); }
  // Those that begin at these addresses. kNotFound, `where` the first at which none begins: those before it are gone.
  Expected<void> remove(std::span<const std::uint64_t> addresses) { return update(addresses, {}); }
  Expected<void> remove(std::initializer_list<std::uint64_t> addresses) { return update(addresses, {}); }
  // Functions that move, or make room for others: removes first, then adds. If nothing could be added, what was to be
  // removed is gone nevertheless.
  Expected<void> update(std::span<const std::uint64_t> removed, std::span<const ManagedFunction> added);

  [[nodiscard]] std::size_t functions() const;
  [[nodiscard]] const CodeManagerReader& reader() const;
  // The table's memfd, sealed against changes of its size; stays the manager's.
  [[nodiscard]] int fd() const;

  class Table;  // src/jit/table/table.h
  [[nodiscard]] const std::shared_ptr<Table>& table() const { return table_; }

 private:
  explicit CodeManager(std::shared_ptr<Table> table) : table_(std::move(table)) {}
  std::shared_ptr<Table> table_;
};

// All of a manager's functions, those that it has and those that come later, for all walks of the own process: as
// add_own_code(CodeRange) for one range. Where the manager has no function nothing is known and its code is followed.
// retire_own_code() takes it away; the manager may be destroyed before. A look-up in it is constant. Linux.
[[nodiscard]] Expected<CodeRangeId> add_own_code(const CodeManager& manager);
// The same by the memfd, which is mapped once more and may be closed then: for other copies of the library in the
// process, each of which has walks of its own. kUnsupported: it is no sealed memfd; kSystem: it cannot be mapped; what
// CodeManagerReader::open says.
[[nodiscard]] Expected<CodeRangeId> add_own_managed_code(int memfd);

}  // namespace windlass
