// The code managers' tables of other processes, and of dumps.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "manager/mapped_table.h"
#include "process/proc_maps.h"
#include "source/unwind_source.h"
#include "windlass/code_manager.h"
#include "windlass/walk.h"

namespace windlass::manager {

// Is it where a process has mapped a code manager's table? The mapping is in pieces, of what core files have and what
// not: this is the first one.
[[nodiscard]] bool shows_table(const process::ProcMap& map);

class SharedTable {
 public:
  // Of a process that lives: its memfd is mapped here, too, and stays when the process is gone. By
  // /proc/PID/map_files, which wants CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, or by a descriptor that the process has
  // of it. kSystem: neither can be opened; kUnsupported: what is there may shrink under its readers; and what
  // CodeManagerReader::open says.
  [[nodiscard]] static Expected<std::shared_ptr<SharedTable>> open(pid_t pid, const process::ProcMap& map);
  // Of whatever has memory, which must outlive it.
  [[nodiscard]] static Expected<std::shared_ptr<SharedTable>> open(const Memory& memory, std::uint64_t address);
  SharedTable(std::shared_ptr<const MappedTable> mapped, const CodeManagerReader& reader, std::uint64_t address,
              const process::FileIdentity& file)
      : mapped_(std::move(mapped)), reader_(reader), address_(address), file_(file) {}
  SharedTable(const SharedTable&) = delete;
  SharedTable& operator=(const SharedTable&) = delete;

  [[nodiscard]] const CodeManagerReader& reader() const { return reader_; }
  [[nodiscard]] std::uint64_t begin() const { return reader_.begin(); }  // of the code
  [[nodiscard]] std::uint64_t end() const { return reader_.end(); }
  // What its readers, and sources made of it, answer for from here on: CodeManagerReader::as_of. No look-up may be
  // under way.
  void set_time(std::uint64_t time) { reader_ = reader_.as_of(time); }
  // Where its process has it.
  [[nodiscard]] std::uint64_t address() const { return address_; }
  // Was it opened for this mapping, or one like it?
  [[nodiscard]] bool is_of(const process::ProcMap& map) const { return map.begin == address_ && map.file == file_; }

 private:
  std::shared_ptr<const MappedTable> mapped_;  // null: none of its own
  CodeManagerReader reader_;
  std::uint64_t address_;
  process::FileIdentity file_;
};

using SharedTables = std::vector<std::shared_ptr<SharedTable>>;

// Those among the mappings of a process that lives; where its memfds cannot be opened, in its memory.
[[nodiscard]] SharedTables open_tables(pid_t pid, std::span<const process::ProcMap> maps, const Memory& memory);
// Those among the mappings of a dump.
[[nodiscard]] SharedTables open_tables(std::span<const process::ProcMap> maps, const Memory& memory);

// [begin, end) cut where code of a manager begins and ends: calls piece(begin, end, table) for each, ascending, `table`
// null for what no manager has.
template <typename Piece>
void cut_by_tables(const SharedTables& tables, std::uint64_t begin, std::uint64_t end, Piece&& piece) {
  while (begin < end) {
    std::uint64_t until = end;
    const std::shared_ptr<SharedTable>* within = nullptr;
    for (const auto& table : tables) {
      if (table->begin() <= begin && begin < table->end()) {
        within = &table;
        until = std::min(until, table->end());
      } else if (table->begin() > begin) {
        until = std::min(until, table->begin());
      }
    }
    piece(begin, until, within != nullptr ? *within : nullptr);
    begin = until;
  }
}

// Its functions as a source, in addresses of the process. Rows with expressions of a table that is not mapped here take
// memory and a lock.
[[nodiscard]] std::unique_ptr<source::UnwindSource> make_source(std::shared_ptr<SharedTable> table);

}  // namespace windlass::manager
