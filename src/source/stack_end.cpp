#include "source/stack_end.h"

#include "windlass/registers.h"

namespace windlass::source {

bool zero_ends_stack(const UnwindSource& source, std::uint64_t address) {
  FrameRow row;
  if (source.is_windows() || !source.architecture() || !source.row_at(address, row) ||
      row.return_address.is(RegisterRule::kUndefined))
    return true;
  const auto function = source.function_at(address);
  if (!function || !source.row_at(function->begin, row)) return false;
  const Architecture architecture = *source.architecture();
  const int pushed = architecture == Architecture::kAArch64 ? 0 : static_cast<int>(Registers::word_size(architecture));
  return row.cfa == CfaRule::at(Registers::sp_number(architecture), pushed);
}

}  // namespace windlass::source
