// The memory that an unwinder may read. Rows are applied, and Windows' unwind codes executed, by templates over this
// concept. So a walk of the own process uses plain loads, and a walk of another process uses calls.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "windlass/walk.h"

namespace windlass {

template <typename M>
concept TargetMemory = requires(const M& memory, std::uint64_t address, void* to, std::size_t size) {
  { memory.read(address, to, size) } -> std::same_as<bool>;
};
static_assert(TargetMemory<Memory>);

}  // namespace windlass
