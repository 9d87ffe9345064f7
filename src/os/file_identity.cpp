#include "os/file_identity.h"

namespace windlass::os {

bool is_same_build_id(std::string_view file, std::string_view wanted) {
  constexpr std::size_t kGuid = 32;  // digits
  if (file == wanted) return true;
  if (wanted.size() != kGuid || file.size() < kGuid) return false;
  std::string swapped;
  for (const unsigned byte : {3u, 2u, 1u, 0u, 5u, 4u, 7u, 6u, 8u, 9u, 10u, 11u, 12u, 13u, 14u, 15u})
    swapped += file.substr(std::size_t{2} * byte, 2);
  return file.starts_with(wanted) || swapped == wanted;
}

Sameness compare(const FileIdentity& mapped, std::string_view build_id, std::uint64_t inode) {
  if (!mapped.build_id.empty()) return is_same_build_id(build_id, mapped.build_id) ? Sameness::kSame : Sameness::kOther;
  if (mapped.inode != 0) return inode == mapped.inode ? Sameness::kSame : Sameness::kOther;
  return Sameness::kUnknown;
}

}  // namespace windlass::os
