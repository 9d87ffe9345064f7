// All stacks of a profile as the script of the HTML page reads them: a prefix tree, and the samples that end at its
// nodes. Every number of the page is computed from these (page_table.js).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/export/frames.h"
#include "profiler/profile/profile.h"

namespace windlass::exporter {

struct PageTable {
  // Numbers as LEB128, column by column:
  // - how many nodes and entries there are;
  // - of each node in preorder, without the root: by how many levels its parent is above the node before it; then its
  //   frame, 0 for the next new one, else how many frames are between this one and the next new one;
  // - of each entry: its node as the distance to that of the entry before, then a column for each of process, event,
  //   label set, end, certainty, module of the innermost frame + 1, its line, count, and value. The value is 0 if the
  //   event has a period.
  std::string bytes;
  std::vector<std::uint32_t> frames;    // ids of `Frames`, in the order in which the columns number them
  std::vector<std::uint32_t> entry_of;  // of each sample: its entry
};

// How the page numbers the modules of a profile. Those of one name (the same library in several containers, anonymous
// memory of several processes) are one.
[[nodiscard]] std::vector<std::uint32_t> page_modules(const profile::Profile& profile);

// `pids`: the page's processes, all that samples have. `modules`: page_modules(). O(samples log samples) time.
[[nodiscard]] PageTable page_table(const profile::Profile& profile, Frames& frames,
                                   const std::vector<std::uint32_t>& pids, const std::vector<std::uint32_t>& modules);

}  // namespace windlass::exporter
