#include <algorithm>
#include <new>

#include "windlass/frame_row.h"

namespace windlass {
namespace {

template <typename Entry>
Entry* lower_bound(Entry* first, std::size_t size, RegisterNumber reg) {
  Entry* const last = first + size;
  while (first != last && first->reg < reg) ++first;
  return first;
}

}  // namespace

const RegisterRule* RegisterRules::find(RegisterNumber reg) const {
  const RegisterEntry* at = lower_bound(begin(), size_, reg);
  return at != end() && at->reg == reg ? &at->rule : nullptr;
}

bool RegisterRules::set(RegisterNumber reg, const RegisterRule& rule) {
  RegisterEntry* const at = lower_bound(entries(), size_, reg);
  RegisterEntry* const last = entries() + size_;
  if (at == last || at->reg != reg) {
    if (size_ == kCapacity) return false;
    std::memmove(static_cast<void*>(at + 1), at, static_cast<std::size_t>(last - at) * sizeof(RegisterEntry));
    ++size_;
  }
  ::new (static_cast<void*>(at)) RegisterEntry{reg, rule};
  return true;
}

void RegisterRules::erase(RegisterNumber reg) {
  RegisterEntry* const at = lower_bound(entries(), size_, reg);
  RegisterEntry* const last = entries() + size_;
  if (at == last || at->reg != reg) return;
  std::memmove(static_cast<void*>(at), at + 1, static_cast<std::size_t>(last - at - 1) * sizeof(RegisterEntry));
  --size_;
}

}  // namespace windlass
