// Which managed runtimes a process has.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/mapped_file.h"
#include "base/timed_memory.h"
#include "os/proc_maps.h"
#include "runtimes/interpreter.h"
#include "runtimes/published_code.h"
#include "windlass/function_ref.h"
#include "windlass/walk.h"

namespace windlass::runtimes {

// Adds the runtimes of a process to the code that it publishes. Runtimes in `known`, the code published before, are
// kept if they are where they were. Others are searched.
//
// If all code is in ELF files, only the mappings are inspected. Otherwise `open_memory` is called for the memory of the
// process, and again if nothing was found in a file that is seen for the first time. `open_file` is called for the file
// of a mapping. The runtimes that are found keep both. A TimedMemory is told what times are asked about
// (PublishedCode::set_time).
struct OpenedMemory {
  template <typename M>
  OpenedMemory(std::shared_ptr<M> opened) {  // NOLINT(google-explicit-constructor)
    if constexpr (std::derived_from<M, TimedMemory>) timed = opened.get();
    memory = std::move(opened);
  }
  std::shared_ptr<const Memory> memory;
  const TimedMemory* timed = nullptr;  // the same, if it is one
};
using OpenMemory = FunctionRef<OpenedMemory()>;
using OpenFile = FunctionRef<Expected<MappedFile>(const os::ProcMap& map)>;
void add_runtimes(manager::PublishedCodes& codes, std::span<const os::ProcMap> maps, OpenMemory open_memory,
                  OpenFile open_file, const manager::PublishedCodes& known);
// The file that a live process has mapped; `parent` as os::files_of() wants it.
[[nodiscard]] Expected<MappedFile> open_mapped_file(pid_t pid, pid_t parent, const os::ProcMap& map);

// Likewise the interpreters of a process. Every file is looked at once, whatever the process.
[[nodiscard]] manager::Interpreters find_interpreters(std::span<const os::ProcMap> maps, OpenMemory open_memory,
                                                      const manager::Interpreters& known);
// Is there one in an image whose first byte is at `base`? For who looks at files himself.
[[nodiscard]] bool has_interpreter(const Memory& image, std::uint64_t base);

// Of a memory that outlives all of it.
[[nodiscard]] inline std::shared_ptr<const Memory> unowned(const Memory& memory) {
  return {std::shared_ptr<const Memory>(), &memory};
}

}  // namespace windlass::runtimes
