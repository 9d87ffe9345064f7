// PE images as modules: those that Wine's loader mapped, and those that a Windows dump lists.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "formats/image/pe.h"
#include "walk/target/modules.h"
#include "windlass/target.h"

namespace windlass::walk {

// How symbol servers, and we, tell a PE image from others of its name.
struct PeIdentity {
  std::uint32_t timestamp = 0;
  std::uint32_t image_size = 0;
  std::string build_id;  // PeImage::build_id; empty: not known
};
// By timestamp and size; where these differ, by the build id (a signed or stripped copy has another size).
[[nodiscard]] bool is_same_image(const image::PeImage& image, const PeIdentity& wanted);

// The image at `begin` as it is in memory: the byte at an RVA is at that index. Pages that cannot be read are zero.
// kNotFound: no headers, or no function table. kLimit: above 256 MiB.
[[nodiscard]] Expected<std::vector<std::byte>> read_mapped_pe(const Memory& memory, std::uint64_t begin);

// A module that a dump of Windows lists.
struct ListedPe {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::string path;  // as Windows wrote it
  PeIdentity identity;
};
// Adds it: its unwind information from the first of the files that is the same image, else from the dump's memory, else
// none. Returns the parts of the file that stand for memory which a dump leaves out: code that no relocation has
// changed. What is missing is noted.
[[nodiscard]] std::vector<FileRange> add_listed_pe(Target& target, const ListedPe& listed,
                                                   std::span<const FileCandidate> files);

// Adds a module for each PE image among the mappings (ascending) of a process. The module spans [begin, end) of the
// image, whatever its sections are mapped from, and is numbered by RVA. Unwind information comes from the file, else
// from memory. Returns the mappings that belong to no image.
[[nodiscard]] std::vector<os::ProcMap> add_loaded_pe(Target& target, std::span<const os::ProcMap> maps, FindFiles find);

}  // namespace windlass::walk
