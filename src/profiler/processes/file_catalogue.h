// The known files. Each content has a single entry: build id, owner and size, else device, inode, time and size. Many
// processes, mounts and names may show the same content. An entry is found by the file that a mapping names.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "os/file_identity.h"
#include "os/proc_maps.h"
#include "profiler/processes/code_file.h"

namespace windlass::profiler {

// One thread only. Files stay where they are until they are erased; no number is given twice. Bound: kMaxIdentities
// identities of mappings; then all are forgotten, and a file is opened again to be found.
class FileCatalogue {
 public:
  static constexpr std::size_t kMaxIdentities = 65536;

  // Numbers begin at 1. Null for those never given, and for files that were erased.
  [[nodiscard]] CodeFile* find(std::uint32_t number);
  // The file that process `tgid` maps, if it has been seen; null also where it was written over in place since.
  [[nodiscard]] CodeFile* known(const os::ProcMap& map, std::uint32_t tgid);
  [[nodiscard]] CodeFile* with_content(const std::string& content);

  // A new file. Its descriptor goes to `opened.fd`'s owner: the caller.
  CodeFile& add(OpenedFile opened, const std::string& path);
  // A mapping with this identity is this file from now on.
  void remember(const os::FileIdentity& identity, CodeFile& file);

  // Files with a table (or known to have none) that nothing in `in_use` (numbers) needs, the longest unused first;
  // `tables` gets the number of all with one. O(files).
  [[nodiscard]] std::vector<CodeFile*> unused(const std::vector<std::uint32_t>& in_use, std::size_t& tables);
  // Nobody finds them any more: a mapping of one is a new file's.
  void forget(const std::vector<CodeFile*>& files);
  // Erases the forgotten files for which needed(number) is false. O(files).
  void erase_dropped(const std::function<bool(std::uint32_t number)>& needed);

  using Files = std::map<std::uint32_t, CodeFile>;  // by number
  [[nodiscard]] const Files& files() const { return files_; }

 private:
  Files files_;
  std::uint32_t last_number_ = 0;
  std::unordered_map<std::string, CodeFile*> by_content_;
  std::map<os::FileIdentity, CodeFile*> by_inode_;
  std::uint64_t generation_ = 0;  // calls of unused()
};

}  // namespace windlass::profiler
