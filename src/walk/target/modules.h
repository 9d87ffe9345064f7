// Modules of an address space from a list of mappings: the same for live processes and dumps, which differ only in
// where the file behind a mapping is found.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "os/mapped_files.h"
#include "os/proc_maps.h"
#include "runtimes/published_code.h"
#include "windlass/function_ref.h"
#include "windlass/target.h"

namespace windlass::walk {

using os::FileCandidate;
// All places where the file behind a mapping can be opened, the best first. `build_id` is the one read from the
// process's memory, or empty. A callback that knows the build id from elsewhere may fill it in.
using FindFiles = FunctionRef<std::vector<FileCandidate>(const os::ProcMap& map, std::string& build_id)>;

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
std::vector<FileRange> add_modules(Target& target, std::span<const os::ProcMap> maps, FindFiles find,
                                   std::uint64_t page_size, FindPublished published);

// Notes, once, the problem that a process's published code or interpreter has, if any.
void note_problem(Target& target, const std::optional<Error>& problem);

}  // namespace windlass::walk
