// The files of a spool's folder: a batch each, with a header that tells a torn file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "windlass/error.h"

namespace windlass::spool {

inline constexpr std::size_t kHeaderBytes = 40;

struct BatchHeader {
  std::uint64_t length = 0, samples = 0;
};

struct ListedBatch {
  std::uint64_t sequence = 0, size = 0;  // size: of the file
};

struct ListedFolder {
  std::vector<ListedBatch> batches;     // by sequence
  std::vector<std::string> unfinished;  // files of an append() that did not end
};

// All take the descriptor of the folder.

[[nodiscard]] Expected<ListedFolder> list_batches(int folder);
// Synced, the folder as well. On an error there is no such batch.
[[nodiscard]] Expected<void> write_batch(int folder, std::uint64_t sequence, std::string_view bytes,
                                         std::uint64_t samples);
// Nothing: the file is torn. The header alone is checked for its mark.
[[nodiscard]] Expected<std::optional<BatchHeader>> read_header(int folder, std::uint64_t sequence);
struct ReadBatch {
  BatchHeader header;
  std::string bytes;
};
// Nothing: the file is torn.
[[nodiscard]] Expected<std::optional<ReadBatch>> read_batch(int folder, std::uint64_t sequence);
void delete_batch(int folder, std::uint64_t sequence);
// How often this folder has been opened, this time included. Kept in a file of the folder.
[[nodiscard]] Expected<std::uint32_t> count_opening(int folder, std::uint32_t at_least);

}  // namespace windlass::spool
