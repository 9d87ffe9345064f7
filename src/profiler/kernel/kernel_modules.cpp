#include "profiler/kernel/kernel_modules.h"

#include <atomic>
#include <cerrno>

#include <fmt/format.h>

#include "windlass_process_layout.h"

namespace windlass::profiler {
namespace {

// How the module's code gets from the thread's pointer to another stack's; 0: it does not, or not by a way that WL_WAY
// can hold.
std::uint64_t way_of(const table::UnwindTable& table) {
  for (const table::TraceRule& rule : table.rules())
    if (rule.cfa_kind == WL_CFA_THREAD && rule.cfa_offset == static_cast<std::int16_t>(rule.cfa_offset))
      return WL_WAY(rule.cfa_offset, rule.cfa_reg, rule.cfa_arg, rule.x_offset & ~7, 0);
  return 0;
}

}  // namespace

std::expected<std::uint32_t, SystemError> KernelModules::add_module() {
  const std::lock_guard lock(mutex_);
  std::uint32_t id;
  if (!free_.empty()) {
    id = free_.back();
    free_.pop_back();
  } else if (states_.size() < list_.size()) {
    id = static_cast<std::uint32_t>(states_.size());
    states_.emplace_back();
  } else {
    return std::unexpected(SystemError{fmt::format("more than {} modules", list_.size()), ENOSPC});
  }
  states_[id] = State{};
  states_[id].used = true;
  list_[id] = wl_module{};
  list_[id].x_reg = WL_NO_XREG;
  return id;
}

std::expected<void, SystemError> KernelModules::load_table(std::uint32_t id, const table::UnwindTable& table) {
  auto placed = table::load_table(table, arena_);
  if (!placed) return std::unexpected(SystemError{"loading a table: " + placed.error().text(), ENOMEM});
  const std::lock_guard lock(mutex_);
  if (id >= states_.size() || !states_[id].used || states_[id].removed || list_[id].state == WL_MODULE_READY) {
    for (const auto& piece : placed->pieces) arena_.free(piece.ref, piece.bytes);
    return std::unexpected(SystemError{fmt::format("module {} takes no table", id), EINVAL});
  }
  states_[id].pieces = std::move(placed->pieces);
  wl_module& module = list_[id];
  module.first_page = placed->module.first_page;
  module.page_count = placed->module.page_count;
  module.directory = placed->module.directory;
  module.palette = placed->module.palette;
  module.x_reg = placed->module.x_reg;
  std::atomic_ref(module.state).store(WL_MODULE_READY, std::memory_order_release);
  if (const std::uint64_t way = way_of(table); way != 0) way_ = way;
  return {};
}

void KernelModules::set_no_table(std::uint32_t id) {
  std::atomic_ref(list_[id].state).store(WL_MODULE_NO_TABLE, std::memory_order_release);
}

void KernelModules::remove_module(std::uint32_t id) {
  const std::lock_guard lock(mutex_);
  if (id >= states_.size()) return;
  states_[id].removed = true;
  if (states_[id].users == 0) release(id);
}

void KernelModules::add_user(std::span<const std::uint32_t> modules) {
  const std::lock_guard lock(mutex_);
  for (const std::uint32_t id : modules)
    if (id < states_.size()) ++states_[id].users;
}

void KernelModules::remove_user(std::span<const std::uint32_t> modules) {
  const std::lock_guard lock(mutex_);
  for (const std::uint32_t id : modules)
    if (id < states_.size() && --states_[id].users == 0 && states_[id].removed) release(id);
}

// With the lock.
void KernelModules::release(std::uint32_t id) {
  State& state = states_[id];
  if (!state.used) return;
  list_[id].state = WL_MODULE_PENDING;
  for (const auto& piece : state.pieces) arena_.free(piece.ref, piece.bytes);
  state = State{};
  free_.push_back(id);
}

}  // namespace windlass::profiler
