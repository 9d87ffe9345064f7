// The unwinder's C (bpf/windlass_step.h) as user code for AArch64 stacks: modules' tables in an arena, a process's
// mappings, steps. One translation unit of a program includes this or the x86-64 one, not both.
#pragma once

#define WL_TARGET_A64

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "lookup/table/arena.h"
#include "lookup/table/unwind_table.h"
#include "windlass_user_env.h"

#include "windlass_walk.h"

namespace windlass::test {

class A64Unwinder {
 public:
  using Read = std::function<bool(std::uint64_t address, void* to, std::size_t size)>;

  explicit A64Unwinder(Read read) : read_(std::move(read)), modules_(kMostModules) {
    unwind_->space = 1;
    env_.address_mask = (1ULL << 48) - 1;
    env_.arena = reinterpret_cast<const unsigned char*>(arena_->base());
    env_.modules = modules_.data();
    env_.module_count = kMostModules;
    env_.context = this;
    env_.read = [](void* context, void* to, __u32 size, __u64 address) {
      return static_cast<A64Unwinder*>(context)->read_(address, to, size) ? 0 : 1;
    };
  }
  A64Unwinder(const A64Unwinder&) = delete;
  A64Unwinder& operator=(const A64Unwinder&) = delete;

  // The module's number, to be named by mappings.
  Expected<std::uint32_t> add_module(const table::UnwindTable& table) {
    if (module_count_ == kMostModules) return fail(ErrorCode::kLimit, "too many modules", 0);
    const auto placed = table::load_table(table, *arena_);
    if (!placed) return Failure(placed.error());
    modules_[module_count_] = placed->module;
    return module_count_++;
  }
  void set_mappings(std::vector<wl_mapping> mappings) {
    std::ranges::sort(mappings, {}, &wl_mapping::begin);
    const auto ref = arena_->allocate(sizeof(wl_maps_head) + mappings.size() * sizeof(wl_mapping));
    if (!ref) return;
    std::memcpy(arena_->at(*ref) + sizeof(wl_maps_head), mappings.data(), mappings.size() * sizeof(wl_mapping));
    unwind_->maps = *ref + (sizeof(wl_maps_head) >> WL_REF_SHIFT);
    unwind_->map_count = static_cast<std::uint32_t>(mappings.size());
    *memo_ = {};
  }

  // A frame whose registers are all known, interrupted at `pc`.
  [[nodiscard]] static wl_cursor cursor(const std::uint64_t (&x)[31], std::uint64_t sp, std::uint64_t pc) {
    wl_cursor made{};
    std::copy(std::begin(x), std::end(x), made.regs);
    made.regs[WL_SP] = sp;
    made.regs[WL_PC] = pc;
    made.valid = WL_VALID_ALL;
    made.exact = 1;
    return made;
  }

  // WL_CONTINUE with the caller in `at`, or the wl_end. Where the memo has kept the rule as a plain one, that way must
  // lead to the same place: see memo_differences().
  int step(wl_cursor& at) {
    const wl_cursor before = at;
    unwind_->cursor = at;
    const int status = wl_step(unwind_.get(), memo_.get());
    at = unwind_->cursor;
    const std::uint64_t pc = wl_lookup_pc(&before);
    int hit = 0;
    const wl_memo_entry& entry = *wl_memo_find(memo_.get(), unwind_->space, pc, before.exact, &hit);
    if (hit == 0 || (entry.value & WL_MEMO_PLAIN) == 0) return status;
    ++plain_steps_;
    unwind_->cursor = before;
    wl_fast fast{before.regs[WL_PC], before.regs[WL_SP], before.regs[WL_FP], before.valid, before.exact};
    const int plain = wl_apply_plain(unwind_.get(), &fast, entry.value);
    const bool same =
        plain == status &&
        (status != WL_CONTINUE || (fast.pc == at.regs[WL_PC] && fast.sp == at.regs[WL_SP] &&
                                   fast.fp == at.regs[WL_FP] && fast.valid == at.valid && fast.exact == at.exact));
    memo_differences_ += same ? 0 : 1;
    return status;
  }
  [[nodiscard]] std::uint64_t plain_steps() const { return plain_steps_; }
  [[nodiscard]] std::uint64_t memo_differences() const { return memo_differences_; }

 private:
  static constexpr std::uint32_t kMostModules = 64;

  Read read_;
  std::unique_ptr<table::Arena> arena_ = std::move(*table::Arena::create({}, 512));
  std::vector<wl_module> modules_;
  std::uint32_t module_count_ = 0;
  std::unique_ptr<wl_unwind> unwind_ = std::make_unique<wl_unwind>();
  std::unique_ptr<wl_memo> memo_ = std::make_unique<wl_memo>();
  wl_env& env_ = unwind_->env;
  std::uint64_t plain_steps_ = 0, memo_differences_ = 0;
};

}  // namespace windlass::test
