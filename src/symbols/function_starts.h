// Where functions start, by the unwind information: what groups the addresses of stripped code.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/mapped_file.h"
#include "lookup/sources/unwind_source.h"
#include "profiler/profile/profile.h"

namespace windlass::symbols {

// For each address, in the source's numbering, the begin of the function whose unwind information covers it, 0 if none
// does.
[[nodiscard]] std::vector<std::uint64_t> function_starts(const sources::UnwindSource& source,
                                                         std::span<const std::uint64_t> addresses);

// The same of the file that was mapped as a module, which stays open.
class FunctionStarts {
 public:
  explicit FunctionStarts(const profile::Module& module);
  // Empty if the file cannot be read or is another one (its build id differs).
  [[nodiscard]] std::vector<std::uint64_t> at(std::span<const std::uint64_t> addresses) const;

 private:
  MappedFile file_;
  std::unique_ptr<sources::UnwindSource> source_;  // of `file_`; null: there is none
};

}  // namespace windlass::symbols
