// A target made by hand for the shared unwinder: memory, registers, mappings, modules.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "lookup/table/arena.h"
#include "lookup/table/unwind_table.h"
#include "windlass_user_env.h"

#include "windlass_walk.h"

namespace windlass::testing {

inline wl_rule rule_of(unsigned cfa_kind, unsigned cfa_reg, int cfa_offset, unsigned fp_kind = WL_REG_SAME,
                       int fp_offset = 0) {
  wl_rule rule{};
  rule.cfa_kind = static_cast<__u8>(cfa_kind);
  rule.cfa_reg = static_cast<__u8>(cfa_reg);
  rule.cfa_offset = cfa_offset;
  rule.fp_kind = static_cast<__u8>(fp_kind) & 15;
  rule.fp_offset = static_cast<__s16>(fp_offset);
  rule.ra_kind = WL_REG_CFA;
  rule.ra_offset = -8;
  return rule;
}

class FakeTarget {
 public:
  static constexpr std::uint64_t kStack = 0x7ffd00000000, kCode = 0x555500000000, kEpoch = 1234567890123;
  static constexpr std::uint32_t kTgid = 4321;

  FakeTarget() : arena(std::move(*table::Arena::create({}, 64))), modules(16) {
    env.arena = reinterpret_cast<const unsigned char*>(arena->base());
    env.modules = modules.data();
    env.module_count = static_cast<std::uint32_t>(modules.size());
    env.context = this;
    env.address_mask = ~0ULL;
    scratch->unwind.space = 1;
    scratch->unwind.epoch = kEpoch;
    scratch->unwind.tgid = kTgid;
    env.learned = [](void* context, const wl_learned_key* key) -> const wl_learned* {
      auto& self = *static_cast<FakeTarget*>(context);
      if (key->tgid != kTgid) return nullptr;
      if (key->kind & WL_LEARNED_CALL) {
        const auto call = self.calls.find({key->pc, key->epoch, key->kind});
        return call != self.calls.end() ? &call->second : nullptr;
      }
      const auto found = self.lessons.find({key->pc, key->kind});
      return found != self.lessons.end() && key->epoch == kEpoch ? &found->second : nullptr;
    };
    env.read = [](void* context, void* to, __u32 size, __u64 address) {
      auto& self = *static_cast<FakeTarget*>(context);
      ++self.reads;
      auto next = self.memory.upper_bound(address);
      if (next == self.memory.begin()) return 1;
      const auto& [begin, bytes] = *std::prev(next);
      if (address - begin > bytes.size() || size > bytes.size() - (address - begin)) return 1;
      std::memcpy(to, bytes.data() + (address - begin), size);
      return 0;
    };
  }

  void write(std::uint64_t address, const std::vector<std::uint64_t>& words) {
    auto& bytes = memory[address];
    bytes.resize(words.size() * 8);
    if (!words.empty()) std::memcpy(bytes.data(), words.data(), bytes.size());
  }
  void write_code(std::uint64_t address, const std::vector<std::uint8_t>& code) { memory[address] = code; }

  // As the agent publishes a process that has changed: under a new number, the memo as it is.
  void publish(const std::vector<wl_mapping>& mappings) {
    ++scratch->unwind.space;
    place(mappings);
  }
  void set_mappings(const std::vector<wl_mapping>& mappings) {
    *memo = {};
    place(mappings);
  }

  // As the agent teaches frames of the process.
  void teach(std::uint64_t pc, std::uint32_t kind, const wl_learned& lesson) {
    wl_learned& kept = lessons[{pc, kind}] = lesson;
    kept.check = wl_learned_check(&lesson, {pc, kEpoch, kTgid, kind});
  }

  // The same of a call that returns to `caller`, checked in `epoch`.
  void teach_call(std::uint64_t pc, std::uint64_t caller, std::uint32_t kind, std::uint64_t epoch = kEpoch) {
    wl_steady lesson{};
    lesson.guard = epoch;
    wl_learned& kept = calls[{pc, caller, kind}] = std::bit_cast<wl_learned>(lesson);
    kept.check = wl_learned_check(&kept, {pc, caller, kTgid, kind});
  }

  // The frames from `start` on, as the kernel's events have them.
  std::vector<std::uint64_t> walk(const wl_cursor& start) {
    wl_unwind& unwind = scratch->unwind;
    unwind.cursor = start;
    unwind.frames = unwind.first = unwind.memo_hits = unwind.managed_frames = 0;
    unwind.learned_frames = unwind.taken_count = 0;
    unwind.table.address = 0;
    unwind.hash = 0;
    unwind.sum = {0, 1};
    unwind.frame_limit = frame_limit;
    wl_walk(scratch.get(), memo.get(), &trail);
    wl_take_followed(scratch.get(), &trail);
    return {scratch->frames, scratch->frames + unwind.frames};
  }

  // All registers known, exact pc.
  static wl_cursor cursor(std::uint64_t pc, std::uint64_t sp, std::uint64_t fp) {
    wl_cursor made{};
    for (unsigned i = 0; i < 16; ++i) made.regs[i] = 0x1000 + i;
    made.regs[WL_X64_RIP] = pc;
    made.regs[WL_X64_RSP] = sp;
    made.regs[WL_X64_RBP] = fp;
    made.valid = (1U << 17) - 1;
    made.exact = 1;
    return made;
  }

  // One step by whatever way there is; the memo keeps the rule, if there is one.
  int step(wl_cursor& at) {
    return with(at, [&](wl_unwind* unwind) { return wl_step(unwind, memo.get()); });
  }
  int apply(wl_cursor& at, const wl_rule& rule, std::uint32_t x_reg) {
    return with(at, [&](wl_unwind* unwind) { return wl_apply(unwind, &rule, x_reg, wl_lookup_pc(&at)); });
  }
  int apply_plain(wl_cursor& at, wl_fast& fast, std::uint64_t value) {
    return with(at, [&](wl_unwind* unwind) { return wl_apply_plain(unwind, &fast, value); });
  }

  std::unique_ptr<table::Arena> arena;
  std::vector<wl_module> modules;
  std::map<std::uint64_t, std::vector<std::uint8_t>> memory;
  std::map<std::pair<std::uint64_t, std::uint32_t>, wl_learned> lessons;                // by pc and kind
  std::map<std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>, wl_learned> calls;  // by pc, caller and kind
  std::unique_ptr<wl_scratch> scratch = std::make_unique<wl_scratch>();
  std::unique_ptr<wl_memo> memo = std::make_unique<wl_memo>();
  wl_trail trail{};  // of the thread
  std::uint32_t frame_limit = 64;
  wl_env& env = scratch->unwind.env;
  std::uint32_t maps = 0, count = 0;
  unsigned reads = 0;

 private:
  void place(const std::vector<wl_mapping>& mappings) {
    auto ref = arena->allocate(sizeof(wl_maps_head) + mappings.size() * sizeof(wl_mapping));
    maps = scratch->unwind.maps = *ref + 1;
    count = scratch->unwind.map_count = static_cast<std::uint32_t>(mappings.size());
    std::copy(mappings.begin(), mappings.end(), reinterpret_cast<wl_mapping*>(arena->at(maps)));
  }
  int with(wl_cursor& at, const auto& step) {
    scratch->unwind.cursor = at;
    const int status = step(&scratch->unwind);
    at = scratch->unwind.cursor;
    return status;
  }
};

}  // namespace windlass::testing
