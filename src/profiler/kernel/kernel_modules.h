// The kernel side's modules: the list that the BPF programs index, and what each has in the arena.
#pragma once

#include <cstdint>
#include <expected>
#include <mutex>
#include <span>
#include <vector>

#include "lookup/table/arena.h"
#include "lookup/table/unwind_table.h"
#include "profiler/kernel/table_store.h"
#include "windlass_process_layout.h"
#include "windlass_table_layout.h"

namespace windlass::profiler {

// A removed module's memory and number are given out again when no mapping set uses it. Thread-safe.
class KernelModules final : public TableStore {
 public:
  // `list`: what the programs read, `arena`: where tables go, `way`: that of the last table that has one. All must
  // outlive it.
  KernelModules(std::span<wl_module> list, table::Arena& arena, wl_way& way) : list_(list), arena_(arena), way_(way) {}

  // ENOSPC when the list is full.
  std::expected<std::uint32_t, SystemError> add_module() override;
  // EINVAL for a number that was not given out or has its table.
  std::expected<void, SystemError> load_table(std::uint32_t module, const table::UnwindTable& table) override;
  void set_no_table(std::uint32_t module) override;
  void remove_module(std::uint32_t module) override;

  [[nodiscard]] const wl_module& module(std::uint32_t id) const { return list_[id]; }

  // A mapping set names these, each once; numbers that were never given out do no harm. The second call, when nothing
  // in the kernel reads that set any more.
  void add_user(std::span<const std::uint32_t> modules);
  void remove_user(std::span<const std::uint32_t> modules);

 private:
  struct State {
    std::vector<table::ArenaPiece> pieces;
    std::uint32_t users = 0;  // mapping sets, retired ones included
    bool used = false, removed = false;
  };
  void release(std::uint32_t id);

  std::span<wl_module> list_;
  table::Arena& arena_;
  wl_way& way_;
  std::mutex mutex_;
  std::vector<State> states_;
  std::vector<std::uint32_t> free_;
};

}  // namespace windlass::profiler
