// Where functions start, by the unwind information: what groups the addresses of stripped code.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "profile/profile.h"

namespace windlass::symbols {

// For each address of the module, in the file's own numbering, the begin of the FDE it lies in, 0 if in none. Empty if
// the file cannot be read or is not the one that was mapped (its build id differs). O(FDEs log FDEs + addresses log
// FDEs).
[[nodiscard]] std::vector<std::uint64_t> function_starts(const profile::Module& module,
                                                         std::span<const std::uint64_t> addresses);

}  // namespace windlass::symbols
