// Code that a process makes at run time and describes itself: by a code manager's table, by a jitdump, by a runtime.
// Walks of the process take the functions of this code from here, with names and rows.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/address_range.h"
#include "lookup/sources/name_source.h"
#include "lookup/sources/unwind_source.h"
#include "os/file_identity.h"
#include "os/proc_maps.h"
#include "windlass/walk.h"
#include "windlass_learned_layout.h"
#include "windlass_process_layout.h"

namespace windlass::manager {

// The names of the code; make_source() has the rows. Look-ups may come from several threads, but not during set_time().
class PublishedCode : public sources::NameSource, public std::enable_shared_from_this<PublishedCode> {
 public:
  PublishedCode(std::uint64_t address, const os::FileIdentity& file) : address_(address), file_(file) {}
  PublishedCode(const PublishedCode&) = delete;
  PublishedCode& operator=(const PublishedCode&) = delete;

  // The address of its mapping in the process; unique in a process.
  [[nodiscard]] std::uint64_t address() const { return address_; }
  // True if it was opened for this mapping, or for one like it.
  [[nodiscard]] bool is_of(const os::ProcMap& map) const { return map.is_at(address_, file_); }

  // The addresses that it answers for. If several answer for an address, only the one of the highest rank counts.
  [[nodiscard]] virtual std::uint64_t begin() const = 0;
  [[nodiscard]] virtual std::uint64_t end() const = 0;
  [[nodiscard]] virtual std::uint64_t rank() const = 0;

  // Sets the moment for which it answers (kTimeSet), and its sources of rows: CLOCK_MONOTONIC in ns. No look-up may be
  // under way.
  virtual void set_time(std::uint64_t time) = 0;

  // True if no more names can arrive for code that ran at `time`. `ended` is when the process ended; 0: it lives.
  [[nodiscard]] virtual bool is_settled(std::uint64_t /*time*/, std::uint64_t /*ended*/) { return true; }
  // For code that runs threads on another stack: where each thread keeps its stack pointer there. None: not known yet,
  // or there is no such stack.
  [[nodiscard]] virtual wl_way way_to_stack() { return {}; }
  // Code that keeps its caller's frame in memory of the runtime instead of on the stack, and how the kernel side reads
  // that frame.
  struct HoldingCode {
    AddressRange range;
    wl_held frame;
  };
  [[nodiscard]] virtual std::vector<HoldingCode> holding_code() const { return {}; }
  // True if the kernel side can leave its frames by itself, once it has learned of these.
  [[nodiscard]] virtual bool teaches() const { return false; }
  // What the kernel side has to know of frames at an address; without `check`. Nothing: the agent has to leave them.
  [[nodiscard]] virtual std::optional<wl_learned> lesson(CodeAddress /*pc*/) { return std::nullopt; }
  // The same for the whole function at `pc`, as far as that is known without following more of its code. Where two
  // stretches overlap the first one counts. Nothing: the agent has to leave frames there.
  struct Lessons {
    AddressRange stretch;
    std::optional<wl_learned> interrupted, called;  // of frames there that were interrupted, or have called
  };
  [[nodiscard]] virtual std::vector<Lessons> lessons_around(CodeAddress /*pc*/) { return {}; }
  // Where functions begin that have come since the last call, at most so many, so that lessons_around() can tell of
  // them before they are met. Not of all runtimes.
  [[nodiscard]] virtual std::vector<std::uint64_t> new_functions(std::size_t /*most*/) { return {}; }
  // The heap of code that an address is in, if the kernel side can read there how its frames are left. So it needs no
  // lesson of code that is new. It holds for addresses in [begin, end).
  [[nodiscard]] virtual std::optional<wl_code_heap> heap_of(std::uint64_t /*address*/) { return std::nullopt; }
  // As UnwindSource has it.
  [[nodiscard]] virtual bool may_be_outermost(std::uint64_t /*address*/) { return true; }
  // True if it has just begun, and will know more.
  [[nodiscard]] virtual bool is_starting() { return false; }
  // Called for code of its process that is in no ELF file.
  virtual void note_code(const os::ProcMap& /*map*/) {}
  // Called for code of the file that it was opened for.
  virtual void note_file_code(const os::ProcMap& /*map*/) {}
  // True for a mapping of this code's file. perf's events name a file by its build id, if there is one; /proc uses the
  // inode.
  [[nodiscard]] bool is_in_file_of(const os::ProcMap& map) const {
    if (!map.file.build_id.empty()) return map.file.build_id == file_.build_id;
    return map.file.inode == file_.inode && map.file.major == file_.major && map.file.minor == file_.minor;
  }
  // Ranges of files' mappings for which it answers before the file: a runtime's builtins, whose frames run functions
  // that no file has. Names that it does not know are the file's.
  [[nodiscard]] virtual std::vector<AddressRange> file_code() const { return {}; }
  // Its error, if it has one.
  [[nodiscard]] virtual std::optional<Error> problem() const { return std::nullopt; }

  // The rows of its functions, in addresses of the process. The source keeps this object.
  [[nodiscard]] virtual std::unique_ptr<sources::UnwindSource> make_source() = 0;

 private:
  std::uint64_t address_;
  os::FileIdentity file_;
};

// Ascending by rank.
using PublishedCodes = std::vector<std::shared_ptr<PublishedCode>>;
void add(PublishedCodes& codes, std::shared_ptr<PublishedCode> code);

// True if a process publishes code by such a mapping.
[[nodiscard]] bool shows_published(const os::ProcMap& map);
// Opens the published code of a process that lives, or has just ended (`parent` as for os::files_of()). Errors: those
// of SharedTable::open() and JitdumpCode::open().
[[nodiscard]] Expected<std::shared_ptr<PublishedCode>> open_published(pid_t pid, pid_t parent, const os::ProcMap& map);
// Opens all published code among the mappings of a live process. A code manager's memfd that cannot be opened is read
// in the process's memory.
[[nodiscard]] PublishedCodes open_published(pid_t pid, std::span<const os::ProcMap> maps, const Memory& memory);
// Opens the published code among the mappings of a dump, which keeps the memory: code managers.
[[nodiscard]] PublishedCodes open_published(std::span<const os::ProcMap> maps, const Memory& memory);

// Cuts [begin, end) where published code begins and ends. Calls piece(begin, end, code) for each piece, ascending;
// `code` is null where none answers.
template <typename Piece>
void cut_by(const PublishedCodes& codes, std::uint64_t begin, std::uint64_t end, Piece&& piece) {
  while (begin < end) {
    std::uint64_t until = end;
    const std::shared_ptr<PublishedCode>* within = nullptr;
    for (const auto& code : codes) {
      if (code->begin() <= begin && begin < code->end()) {
        within = &code;
        until = std::min(until, code->end());
      } else if (code->begin() > begin) {
        until = std::min(until, code->begin());
      }
    }
    piece(begin, until, within != nullptr ? *within : nullptr);
    begin = until;
  }
}

// The same for a file's mapping.
template <typename Piece>
void cut_file_by(const PublishedCodes& codes, std::uint64_t begin, std::uint64_t end, Piece&& piece) {
  while (begin < end) {
    std::uint64_t until = end;
    const std::shared_ptr<PublishedCode>* within = nullptr;
    for (const auto& code : codes)
      for (const AddressRange& range : code->file_code()) {
        if (range.contains(begin)) {
          within = &code;
          until = std::min(until, range.end);
        } else if (range.begin > begin) {
          until = std::min(until, range.begin);
        }
      }
    piece(begin, until, within != nullptr ? *within : nullptr);
    begin = until;
  }
}

}  // namespace windlass::manager
