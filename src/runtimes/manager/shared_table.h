// The code managers' tables of other processes, and of dumps.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "runtimes/manager/mapped_table.h"
#include "runtimes/published_code.h"
#include "windlass/jit/code_manager.h"

namespace windlass::manager {

// Is `map` the first piece of a mapping of a code manager's table? A mapping is in pieces, because core files contain
// some of them and not others.
[[nodiscard]] bool shows_table(const os::ProcMap& map);

class SharedTable final : public PublishedCode {
 public:
  // Opens the table of a live process. Its memfd is mapped here too, and stays when the process has ended. It is opened
  // by /proc/PID/map_files, which needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, or by a descriptor of the process.
  // Errors: kSystem if neither can be opened. kUnsupported if the memfd may shrink while it is read. And those of
  // CodeManagerReader::open().
  [[nodiscard]] static Expected<std::shared_ptr<SharedTable>> open(pid_t pid, const os::ProcMap& map);
  // Of whatever has memory, which must outlive it.
  [[nodiscard]] static Expected<std::shared_ptr<SharedTable>> open(const Memory& memory, std::uint64_t address);
  SharedTable(std::shared_ptr<const MappedTable> mapped, const CodeManagerReader& reader, std::uint64_t address,
              const os::FileIdentity& file)
      : PublishedCode(address, file), mapped_(std::move(mapped)), reader_(reader) {}

  [[nodiscard]] const CodeManagerReader& reader() const { return reader_; }
  std::uint64_t begin() const override { return reader_.begin(); }
  std::uint64_t end() const override { return reader_.end(); }
  std::uint64_t rank() const override { return ~std::uint64_t{0}; }
  // CodeManagerReader::as_of().
  void set_time(std::uint64_t time) override { reader_ = reader_.as_of(time); }
  std::uint64_t functions_at(std::uint64_t address, std::uint64_t function, std::uint64_t time,
                             std::vector<sources::NamedFunction>& to) override;
  // Rows with expressions of a table that is not mapped here take memory and a lock.
  std::unique_ptr<sources::UnwindSource> make_source() override;

 private:
  std::shared_ptr<const MappedTable> mapped_;  // null: none of its own
  CodeManagerReader reader_;
};

}  // namespace windlass::manager
