// The modules of a live process, kept true from one look at its mappings to the next.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <sys/types.h>

#include "os/descriptor.h"
#include "os/proc_maps.h"
#include "runtimes/published_code.h"
#include "walk/code_memo.h"
#include "walk/target/modules.h"
#include "walk/target/process_memory.h"
#include "windlass/target.h"

namespace windlass::walk {

class ProcessModules {
 public:
  // Brings the target's modules up to date with `maps`, the text of /proc/PID/maps. Unchanged modules stay. A mapping
  // of a file is unchanged if it is where it was, and the file has the same inode, size and time of change. Code
  // without a file is unchanged unless code managers or a jitdump have come or gone. The memory must be that of now.
  Refreshed update(Target& target, pid_t pid, std::string_view maps);
  // The same for a stopped process, by its open /proc/PID/maps. If the kernel can tell by PROCMAP_QUERY that nothing
  // has changed, the text is not read. kSystem with errno: the file cannot be read.
  Expected<Refreshed> update(Target& target, pid_t pid, int maps);
  // Says in `memory`, which outlives this, which pages will be read, so that they come in one request: of the program,
  // of images with code at the `pcs`, and of others once stacks have code in them.
  void expect_in(ProcessMemory& memory, std::vector<std::uint64_t> pcs) {
    memory_ = &memory;
    pcs_ = std::move(pcs);
  }
  // For walks by one thread: no code of files is followed twice between two updates, and until the second update()
  // files are opened when a stack has code in them.
  void expect_one_walk() {
    opening_ = Opening::kWhenNeeded;
    memo_ = std::make_unique<CodeMemo>();
  }
  // From here on, the process's published code is that of this moment, even when the process runs on. Part of update().
  // Problems are noted.
  void fix_time(Target& target) const;

 private:
  // State of a file when it was read. Another file can get its name, its inode and its place in memory.
  struct FileState {
    std::uint64_t device = 0, inode = 0, size = 0;
    std::int64_t change_seconds = 0, change_ns = 0;
    bool operator==(const FileState&) const = default;
  };
  // All mappings of one file, or one of code without a file.
  struct Piece {
    std::vector<os::ProcMap> maps;  // ascending
    std::string file;               // that was opened for it; empty: none
    FileState state;
    os::Descriptor open;  // the file, if there are few: it stays the one that it is, and asking is cheap
  };
  using Key = std::tuple<std::string, os::FileIdentity, std::uint64_t>;  // path, file, begin where there is none
  using Pieces = std::map<Key, Piece>;

  static Pieces pieces_of(const std::vector<os::ProcMap>& maps);
  // A mapping as the kernel tells it without a name.
  struct Extent {
    std::uint64_t begin = 0, end = 0, flags = 0, offset = 0, inode = 0;
    std::uint32_t major = 0, minor = 0;
    bool operator==(const Extent&) const = default;
  };
  static constexpr std::size_t kMostOpen = 64;
  [[nodiscard]] static FileState look_at(const Piece& piece);
  // Empty where the kernel does not tell.
  [[nodiscard]] std::vector<Extent> extents_of(int maps) const;
  [[nodiscard]] static std::size_t remove(Target& target, const Piece& piece);
  [[nodiscard]] bool files_are_same() const;
  [[nodiscard]] bool has_published_code(const Piece& piece) const;
  [[nodiscard]] std::size_t remove_changed(Target& target, Pieces& now, bool others_published, bool was_opened);
  [[nodiscard]] bool open_published(const Target& target, pid_t pid, const std::vector<os::ProcMap>& maps);
  void note_files(const Target& target);
  [[nodiscard]] std::vector<os::ProcMap> first_images(const std::vector<os::ProcMap>& maps) const;
  void expect_first(const std::vector<os::ProcMap>& maps) const;
  static bool expect_files(pid_t thread, const std::vector<os::ProcMap>& maps);

  ProcessMemory* memory_ = nullptr;
  std::vector<std::uint64_t> pcs_;
  std::string lines_;            // of `maps` that matter, as they were
  std::vector<Extent> extents_;  // by which a change is noticed; empty: not known
  Pieces pieces_;
  std::vector<os::ProcMap> published_maps_;
  manager::PublishedCodes at_maps_;    // at published_maps_
  manager::PublishedCodes published_;  // these, and runtimes
  Opening opening_ = Opening::kNow;
  std::unique_ptr<CodeMemo> memo_;
  bool windows_ = false;  // there are PE images, which are more than the mappings of their file
};

}  // namespace windlass::walk
