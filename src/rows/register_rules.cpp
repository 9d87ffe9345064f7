#include "windlass/frame_row.h"

namespace windlass {

const RegisterRule* RegisterRules::find(RegisterNumber reg) const {
  const std::size_t at = lower_bound(reg);
  return at != size_ && regs_[at] == reg ? &rules_[at] : nullptr;
}

bool RegisterRules::set(RegisterNumber reg, const RegisterRule& rule) {
  const std::size_t at = lower_bound(reg);
  if (at == size_ || regs_[at] != reg) {
    if (size_ == kCapacity || reg > kMaxRowRegister) return false;
    std::memmove(rules_ + at + 1, rules_ + at, (size_ - at) * sizeof *rules_);
    std::memmove(regs_ + at + 1, regs_ + at, size_ - at);
    regs_[at] = static_cast<std::uint8_t>(reg);
    ++size_;
  }
  rules_[at] = rule;
  return true;
}

void RegisterRules::erase(RegisterNumber reg) {
  const std::size_t at = lower_bound(reg);
  if (at == size_ || regs_[at] != reg) return;
  --size_;
  std::memmove(rules_ + at, rules_ + at + 1, (size_ - at) * sizeof *rules_);
  std::memmove(regs_ + at, regs_ + at + 1, size_ - at);
}

std::optional<ExpressionPlace> FrameRow::place_of(ByteView expression) const {
  const auto offset =
      reinterpret_cast<std::uintptr_t>(expression.data()) - reinterpret_cast<std::uintptr_t>(expressions.data());
  if (offset > expressions.size() || expression.size() > expressions.size() - offset || offset > UINT32_MAX ||
      expression.size() > UINT16_MAX)
    return std::nullopt;
  return ExpressionPlace{static_cast<std::uint32_t>(offset), static_cast<std::uint16_t>(expression.size())};
}

}  // namespace windlass
