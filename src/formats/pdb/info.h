// The identity of a PDB file, its features, and the numbers of its named streams.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/pdb/format.h"
#include "formats/pdb/msf.h"

namespace windlass::pdb {

struct Info {
  InfoHeader header{};
  bool minimal = false;                    // made by /DEBUG:FASTLINK
  std::uint32_t names_stream = kNoStream;  // "/names": the paths of source files
};

// Errors: kTruncated, kOutOfRange, kMalformed.
[[nodiscard]] Expected<Info> read_info(const MsfFile& file);

}  // namespace windlass::pdb
