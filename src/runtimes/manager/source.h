// A code manager's functions as a source of rows, and as one of names.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "lookup/sources/name_source.h"
#include "lookup/sources/unwind_source.h"
#include "windlass/jit/code_manager.h"

namespace windlass::manager {

// In addresses of the process. Functions may come and go meanwhile. `reader` is of what `owner` keeps, for as long as
// the source lives. Rows with expressions of a table that is not mapped here take memory and a lock.
[[nodiscard]] std::unique_ptr<sources::UnwindSource> make_source(std::shared_ptr<const void> owner,
                                                                 const CodeManagerReader& reader);
// As NameSource::functions_at().
std::uint64_t add_function_at(const CodeManagerReader& reader, std::uint64_t address,
                              std::vector<sources::NamedFunction>& to);

// As of now. Arguments as make_source().
class ManagerNames final : public sources::NameSource {
 public:
  ManagerNames(std::shared_ptr<const void> owner, const CodeManagerReader& reader)
      : owner_(std::move(owner)), reader_(reader) {}
  std::uint64_t functions_at(std::uint64_t address, std::uint64_t /*function*/, std::uint64_t /*time*/,
                             std::vector<sources::NamedFunction>& to) override {
    return add_function_at(reader_, address, to);
  }

 private:
  std::shared_ptr<const void> owner_;
  const CodeManagerReader& reader_;
};

}  // namespace windlass::manager
