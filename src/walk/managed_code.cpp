// By the manager itself: with the writer, which whoever has only the table has no use for.
#include "walk/managed_code.h"

namespace windlass {

Expected<CodeRangeId> add_own_code(const CodeManager& manager) {
  return walk::add_own_managed(manager.table(), manager.reader());
}

}  // namespace windlass
