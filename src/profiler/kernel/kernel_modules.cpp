#include "profiler/kernel/kernel_modules.h"

#include <atomic>
#include <cerrno>

#include <fmt/format.h>

namespace windlass::profiler {
namespace {

// How the module's code gets from the thread's pointer to another stack's, if it does, and by offsets that a wl_way can
// hold.
wl_way way_of(const table::UnwindTable& table) {
  for (const table::TraceRule& rule : table.rules())
    if (rule.cfa_kind == WL_CFA_THREAD && rule.way_first == static_cast<std::int16_t>(rule.way_first))
      return {.first = static_cast<std::int16_t>(rule.way_first),
              .second = rule.way_second,
              .sp = rule.way_sp,
              .keeper = rule.last.words,
              .end = 0,
              .there = 1};
  return {};
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
  if (const wl_way way = way_of(table); way.there != 0) way_ = way;
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
