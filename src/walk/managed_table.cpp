#include "runtimes/manager/mapped_table.h"
#include "runtimes/manager/source.h"
#include "walk/code_ranges.h"
#include "walk/managed_code.h"
#include "walk/own_modules.h"

namespace windlass {

Expected<CodeRangeId> walk::add_own_managed(std::shared_ptr<const void> owner, const CodeManagerReader& reader) {
  const std::uint64_t begin = reader.begin(), end = reader.end();
  if (own_module_has_code(begin, end))
    return fail(ErrorCode::kMalformed, "code manager's range overlaps a loaded module's code", begin, end);
  auto names = std::make_shared<manager::ManagerNames>(owner, reader);
  return own_code_ranges().add_changing({.begin = begin, .end = end, .bias = 0, .path = "[jit]", .file = {}},
                                        manager::make_source(std::move(owner), reader), std::move(names));
}

Expected<CodeRangeId> add_own_managed_code(int memfd) {
  const auto table = manager::MappedTable::open(memfd);
  if (!table) return Failure(table.error());
  return walk::add_own_managed(*table, (*table)->reader());
}

}  // namespace windlass
