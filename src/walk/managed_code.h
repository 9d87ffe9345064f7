// A code manager as a range of the own process.
#pragma once

#include <memory>

#include "windlass/jit/code_manager.h"

namespace windlass::walk {

// `reader` is of what `owner` keeps.
[[nodiscard]] Expected<CodeRangeId> add_own_managed(std::shared_ptr<const void> owner, const CodeManagerReader& reader);

}  // namespace windlass::walk
