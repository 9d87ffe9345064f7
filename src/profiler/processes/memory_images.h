// Files that may not be opened (another user's FUSE mount, a share whose server distrusts root), by their images in the
// memory of a process that has mapped them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "os/proc_maps.h"
#include "profiler/processes/code_file.h"

namespace windlass::profiler {

// One thread only. Bounds: 256 MiB an image, kMostBytes of all that were read; an image is read once for each user
// whose processes map it. What one user's processes hold in memory never stands for another's.
class MemoryImages {
 public:
  static constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

  struct Found {
    std::uint32_t tgid = 0;
    std::uint64_t base = 0;  // of the ELF header
    std::string content;     // OpenedFile::content
  };
  // The ELF image that an executable mapping belongs to, by its headers; nothing where these are not in memory, or do
  // not put code there. Few reads.
  [[nodiscard]] std::optional<Found> find(std::uint32_t tgid, const os::ProcMap& map);
  // Its bytes, in a memory file. Nothing where they cannot be read, its unwind information above all, or the bounds
  // are reached.
  [[nodiscard]] std::optional<OpenedFile> read(const Found& found);

 private:
  static constexpr std::uint64_t kMoment = 10'000'000;  // ns that mappings that were read serve

  [[nodiscard]] const std::vector<os::ProcMap>& maps_of(std::uint32_t tgid);

  std::uint32_t last_ = 0;  // whose mappings are in maps_, as of last_time_
  std::uint64_t last_time_ = 0;
  std::vector<os::ProcMap> maps_;
  std::uint64_t bytes_ = 0;
};

}  // namespace windlass::profiler
