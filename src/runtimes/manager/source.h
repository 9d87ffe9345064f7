// A code manager's functions as an unwind source.
#pragma once

#include <memory>

#include "lookup/sources/unwind_source.h"
#include "windlass/jit/code_manager.h"

namespace windlass::manager {

// In addresses of the process. Functions may come and go meanwhile. `reader` is of what `owner` keeps, for as long as
// the source lives. Rows with expressions of a table that is not mapped here take memory and a lock.
[[nodiscard]] std::unique_ptr<sources::UnwindSource> make_source(std::shared_ptr<const void> owner,
                                                                 const CodeManagerReader& reader);

}  // namespace windlass::manager
