// Modules of an address space from a list of mappings: the same for live processes and dumps, which differ only in
// where the file behind a mapping is found.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "os/mapped_files.h"
#include "os/proc_maps.h"
#include "runtimes/published_code.h"
#include "walk/module.h"
#include "windlass/function_ref.h"
#include "windlass/target.h"

namespace windlass::walk {

using os::FileCandidate;

// A mapped image's build id. It is read from the process's memory when first asked for.
class BuildId {
 public:
  explicit BuildId(FunctionRef<std::string()> read) : read_(read) {}
  // Empty: not known.
  [[nodiscard]] const std::string& get() {
    if (!known_) known_ = read_();
    return *known_;
  }
  void set(std::string known) { known_ = std::move(known); }

 private:
  FunctionRef<std::string()> read_;
  std::optional<std::string> known_;
};

// All places where the file behind a mapping can be opened, the best first. A callback that knows the build id from
// elsewhere may set it.
using FindFiles = FunctionRef<std::vector<FileCandidate>(const os::ProcMap& map, BuildId& build_id)>;

// A mapped file that was found, for memory that a dump leaves out.
struct FileRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;
  std::string file;
};

// What the makers of generated code have published of it. Asked once, with the files that were found, before that code
// is added.
using FindPublished = FunctionRef<manager::PublishedCodes(std::span<const FileRange> files)>;

// Adds the modules of a process. `maps` are ascending. A module is made for every PE image (pe_modules.h), and for
// every other executable mapping; neighbours of the same file make a single module. Unwind information comes from the
// file, else from memory. If there is neither, a code range is added, or a module with functions that were published
// for this code.
//
// Files that are missing, or are not the files that ran, are noted. Returns the mappings of the files found, also those
// that are not executable.
//
// kWhenNeeded: an ELF file whose headers are in memory is not opened, if its first path leads to the mapped file for
// certain and its file system is on a block device, which answers. Module opens it.
enum class Opening : std::uint8_t { kNow, kWhenNeeded };
struct AddOptions {
  Opening opening = Opening::kNow;
  CodeMemo* memo = nullptr;  // of code of files that is followed; null: none
};
std::vector<FileRange> add_modules(Target& target, std::span<const os::ProcMap> maps, FindFiles find,
                                   std::uint64_t page_size, FindPublished published, const AddOptions& options = {});

// Notes, once, the problem that a process's published code or interpreter has, if any.
void note_problem(Target& target, const std::optional<Error>& problem);

}  // namespace windlass::walk
