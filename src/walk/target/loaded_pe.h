// PE images in a Linux process, where Wine's loader put them. The headers are mapped from the file. A section is mapped
// too, if the file's alignment is that of pages. Otherwise, as in MinGW's and most of Microsoft's files, sections are
// copied to anonymous memory, which has no name in /proc/PID/maps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/image/pe.h"
#include "os/proc_maps.h"
#include "windlass/function_ref.h"

namespace windlass::walk {

struct LoadedPe {
  std::uint64_t begin = 0;  // address of RVA 0
  std::uint64_t end = 0;    // behind the image's last page
  image::PeMachine machine = image::PeMachine::kAmd64;
  std::uint32_t timestamp = 0;
  std::size_t headers = 0;  // index of the mapping that begins with them: its path is the image's file
};

using ReadMemory = FunctionRef<bool(std::uint64_t address, void* to, std::size_t size)>;

// `maps` ascending. Images that were opened as data only, of which nothing is executable, are none. One read of a page
// for each file that is mapped from its begin. Ascending, disjoint.
[[nodiscard]] std::vector<LoadedPe> find_loaded_pe(std::span<const os::ProcMap> maps, ReadMemory read);

}  // namespace windlass::walk
