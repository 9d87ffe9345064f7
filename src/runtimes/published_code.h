// What a process says of the code that it makes at run time: its code managers' tables, its jitdump. Whoever walks its
// stacks takes the functions of such code, their names and their rows, from here.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lookup/sources/unwind_source.h"
#include "os/file_identity.h"
#include "os/proc_maps.h"
#include "runtimes/interpreter.h"
#include "windlass/walk.h"

namespace windlass::manager {

struct AddressRange {
  std::uint64_t begin = 0, end = 0;
};

// Look-ups may come from several threads, but for set_time().
class PublishedCode : public std::enable_shared_from_this<PublishedCode> {
 public:
  PublishedCode(std::uint64_t address, const os::FileIdentity& file) : address_(address), file_(file) {}
  virtual ~PublishedCode() = default;
  PublishedCode(const PublishedCode&) = delete;
  PublishedCode& operator=(const PublishedCode&) = delete;

  // Where its process has it mapped: no two of a process have the same.
  [[nodiscard]] std::uint64_t address() const { return address_; }
  // Was it opened for this mapping, or one like it?
  [[nodiscard]] bool is_of(const os::ProcMap& map) const {
    return map.begin == address_ && map.file.inode == file_.inode && map.file.major == file_.major &&
           map.file.minor == file_.minor;
  }

  // The addresses that it answers for. Where several do, the one of the highest rank does alone.
  [[nodiscard]] virtual std::uint64_t begin() const = 0;
  [[nodiscard]] virtual std::uint64_t end() const = 0;
  [[nodiscard]] virtual std::uint64_t rank() const = 0;

  // What sources made of it answer for from here on: a moment, CLOCK_MONOTONIC in ns. No look-up may be under way.
  virtual void set_time(std::uint64_t time) = 0;

  struct Function {
    std::uint64_t begin = 0;
    std::string_view name;       // in the room that was given
    std::string_view file = {};  // of its source, at that address; as long as this
    std::uint32_t line = 0;      // 0: not known
  };
  // The function that had an address at a time, with its name, cut where the room is too small.
  [[nodiscard]] virtual std::optional<Function> function_at(std::uint64_t address, std::uint64_t time,
                                                            std::span<char> room) = 0;
  // The function that had an address at a time, innermost inlined one first; `function` is what frame_function() of a
  // source that it made gave for the frame. Appends nothing where nothing is known. False: ask function_at().
  virtual bool functions_at(std::uint64_t /*address*/, std::uint64_t /*function*/, std::uint64_t /*time*/,
                            std::uint64_t& /*begin*/, std::vector<sources::NamedFunction>& /*to*/) {
    return false;
  }
  // Has all come that will ever be said of a time? `ended`: when the process ended, which says nothing any more; 0: it
  // lives.
  [[nodiscard]] virtual bool is_settled(std::uint64_t /*time*/, std::uint64_t /*ended*/) { return true; }
  // Threads are on another stack while they run its code: where each keeps its stack pointer there (WL_WAY). 0: it
  // is not known yet, or they are not.
  [[nodiscard]] virtual std::uint64_t way_to_stack() { return 0; }
  // Code that holds the frame of what called it in memory of the runtime's own, in the place of the stack, and how the
  // kernel side reads it there (WL_HELD).
  struct HoldingCode {
    AddressRange range;
    std::uint64_t way = 0;
  };
  [[nodiscard]] virtual std::vector<HoldingCode> holding_code() const { return {}; }
  // It has just begun, and will know more.
  [[nodiscard]] virtual bool is_starting() { return false; }
  // Its process has code there that is in no ELF file.
  virtual void note_code(const os::ProcMap& /*map*/) {}
  // It has code there of the file that it was opened for.
  virtual void note_file_code(const os::ProcMap& /*map*/) {}
  // perf's events name files by their build id where they have one, /proc by the inode.
  [[nodiscard]] bool is_in_file_of(const os::ProcMap& map) const {
    if (!map.file.build_id.empty()) return map.file.build_id == file_.build_id;
    return map.file.inode == file_.inode && map.file.major == file_.major && map.file.minor == file_.minor;
  }
  // Of files' mappings, where it answers before the file: a runtime's builtins, whose frames run functions that no file
  // has. Names that it does not say are the file's.
  [[nodiscard]] virtual std::vector<AddressRange> file_code() const { return {}; }
  // What is wrong with it.
  [[nodiscard]] virtual std::optional<Error> problem() const { return std::nullopt; }

  // False: it answers for no addresses, and is an interpreter.
  [[nodiscard]] virtual bool has_code() const { return true; }
  // What runs functions without code of their own; null: there is none, or it is not understood.
  [[nodiscard]] virtual const Interpreter* interpreter() const { return nullptr; }

  // Its functions, in addresses of the process; keeps it.
  [[nodiscard]] virtual std::unique_ptr<sources::UnwindSource> make_source() = 0;

 private:
  std::uint64_t address_;
  os::FileIdentity file_;
};

// Ascending by rank.
using PublishedCodes = std::vector<std::shared_ptr<PublishedCode>>;
void add(PublishedCodes& codes, std::shared_ptr<PublishedCode> code);
// That with the interpreter whose list the kernel side reads, which is one in a process; null: there is none.
[[nodiscard]] std::shared_ptr<PublishedCode> recorded_interpreter(const PublishedCodes& codes);

// Is it how a process shows what it says?
[[nodiscard]] bool shows_published(const os::ProcMap& map);
// That of a process that lives, or has just ended (`parent` as os::files_of() wants it). Errors of
// SharedTable::open() and JitdumpCode::open().
[[nodiscard]] Expected<std::shared_ptr<PublishedCode>> open_published(pid_t pid, pid_t parent, const os::ProcMap& map);
// All among the mappings of a process that lives; a code manager's memfd that cannot be opened is read in its memory.
[[nodiscard]] PublishedCodes open_published(pid_t pid, std::span<const os::ProcMap> maps, const Memory& memory);
// Those among the mappings of a dump, which keeps the memory: code managers'.
[[nodiscard]] PublishedCodes open_published(std::span<const os::ProcMap> maps, const Memory& memory);

// [begin, end) cut where code that somebody answers for begins and ends: calls piece(begin, end, code) for each,
// ascending, `code` null where nobody does.
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

// The same of a file's mapping.
template <typename Piece>
void cut_file_by(const PublishedCodes& codes, std::uint64_t begin, std::uint64_t end, Piece&& piece) {
  while (begin < end) {
    std::uint64_t until = end;
    const std::shared_ptr<PublishedCode>* within = nullptr;
    for (const auto& code : codes)
      for (const AddressRange& range : code->file_code()) {
        if (range.begin <= begin && begin < range.end) {
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
