// Random functions for ARM64: prologues, epilogues and parts of every kind that unwind codes can say.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "windlass/prologue.h"

namespace windlass::test {

class RandomArm64Prologue {
 public:
  explicit RandomArm64Prologue(std::uint64_t seed) : random_(seed) {}

  Prologue make() {
    Prologue f{.architecture = Architecture::kAArch64};
    at_ = 0;
    used_.clear();
    if (!one_in(8)) f.ops = main_ops();
    if (one_in(6)) f.size = at_ += 4 * below(4);
    const std::uint32_t epilogues = one_in(12) ? 0 : one_in(20) ? 32 + below(10) : 1 + below(3);
    if (f.ops.empty() || one_in(4)) add_part(f);
    for (std::uint32_t i = 0; i < epilogues && !f.ops.empty(); ++i) {
      body();
      f.epilogues.push_back(epilogue(f.ops));
      at_ = f.epilogues.back().end;
      if (i == 0 && f.parts.empty() && one_in(8)) add_part(f);
    }
    if (epilogues == 0 || one_in(2)) body();
    if (at_ == 0) at_ = 4;
    f.code_size = at_;
    return f;
  }

  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(random_() % limit); }

 private:
  static constexpr RegisterNumber kV = 64, kFp = 29, kLr = 30;
  struct Slot {
    RegisterNumber reg, second;
  };

  bool one_in(std::uint32_t n) { return below(n) == 0; }
  void body() { at_ += 4 * (below(4) + (one_in(3) ? below(40) : 0)); }
  std::uint32_t instruction() {
    if (one_in(9)) at_ += 4 + 4 * below(3);
    return at_ += 4;
  }

  // What an `add sp, sp, #` can say.
  std::uint32_t size() {
    switch (below(5)) {
      case 0: return 16 + 16 * below(255);
      case 1: return 4096 * (1 + below(20));
      case 2: return one_in(4) ? 4096 * (1 + below(300)) : 512;
      default: return 16 + 16 * below(32);
    }
  }

  std::vector<Slot> slots(bool frame) {
    std::vector<Slot> all;
    const auto take = [&](RegisterNumber reg, RegisterNumber second) {
      const auto used = [&](RegisterNumber r) { return std::find(used_.begin(), used_.end(), r) != used_.end(); };
      if (used(reg) || (second != prologue::kNoRegister && used(second))) return;
      all.push_back({reg, second});
      used_.push_back(reg);
      if (second != prologue::kNoRegister) used_.push_back(second);
    };
    const auto pair = [&](unsigned reg) {
      take(static_cast<RegisterNumber>(reg), static_cast<RegisterNumber>(reg + 1));
    };
    const std::uint32_t integers = below(5);
    for (std::uint32_t i = 0; i < integers; ++i) pair(19 + 2 * i);
    if (one_in(3) && integers < 5)
      take(static_cast<RegisterNumber>(19 + 2 * integers), one_in(2) ? prologue::kNoRegister : kLr);
    if (one_in(3)) pair(20 + below(8));
    const std::uint32_t vectors = one_in(2) ? 0 : below(5);
    for (std::uint32_t i = 0; i < vectors && i < 4; ++i) pair(kV + 8 + 2 * i);
    if (one_in(4)) take(static_cast<RegisterNumber>(kV + 8 + below(8)), prologue::kNoRegister);
    if (one_in(8)) pair(below(17));
    if (one_in(8)) take(static_cast<RegisterNumber>(below(29)), prologue::kNoRegister);
    if (one_in(8)) pair(kV + 16 + below(14));
    if (frame) pair(kFp);
    if (one_in(6)) take(kLr, prologue::kNoRegister);
    if (one_in(3)) std::shuffle(all.begin(), all.end(), random_);
    return all;
  }

  std::vector<prologue::Op> main_ops() {
    std::vector<prologue::Op> ops;
    if (one_in(3)) ops.push_back({instruction(), prologue::SignReturnAddress{}});
    const bool frame = one_in(2);
    saves(ops, slots(frame), frame);
    return ops;
  }

  // Each at a multiple of 16, some pairs closer: what every code can name.
  void saves(std::vector<prologue::Op>& ops, const std::vector<Slot>& all, bool frame) {
    std::uint32_t area = static_cast<std::uint32_t>(all.size()) * 16;
    if (one_in(3)) area += 16 * below(5);
    const bool lr_pair = !all.empty() && all[0].second == kLr && all[0].reg != kFp;  // no code moves sp with it
    const bool writeback =
        !all.empty() && !lr_pair && !one_in(4) && area <= (all[0].second == prologue::kNoRegister ? 256U : 496U);
    if (area != 0 && !writeback) ops.push_back({instruction(), prologue::Allocate{area}});
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      const Slot& slot = all[i];
      const bool ordinary = (slot.reg >= 19 && slot.reg < 29) || (slot.reg >= kV + 8 && slot.reg < kV + 15);
      const std::uint32_t more = ordinary && slot.second == prologue::kNoRegister && i > 0 && one_in(2) ? 8 : 0;
      const bool first = i == 0 && writeback;
      ops.push_back(
          {instruction(), prologue::Save{slot.reg, first ? 0 : i * 16 + more, first ? area : 0, slot.second}});
    }
    const bool has_fp = std::any_of(all.begin(), all.end(), [](const Slot& slot) { return slot.reg == kFp; });
    const bool before = one_in(2);
    if (frame && has_fp && before)
      ops.push_back({instruction(), prologue::SetFramePointer{kFp, one_in(2) ? 0 : area / 2 & ~7U}});
    for (std::uint32_t i = ops.empty() ? 1 : below(3); i > 0; --i)
      ops.push_back({instruction(), prologue::Allocate{size()}});
    if (frame && has_fp && !before && one_in(2))
      ops.push_back({instruction(), prologue::SetFramePointer{kFp, 8 * below(3)}});
  }

  // In reverse, one instruction an action or, in ways that compilers know, for several.
  prologue::Epilogue epilogue(const std::vector<prologue::Op>& ops) {
    prologue::Epilogue epilogue{at_, at_, {}};
    const bool by_fp = one_in(2), sums = one_in(2), pauses = one_in(5);
    std::vector<prologue::Action> actions;
    for (auto op = ops.rbegin(); op != ops.rend(); ++op) actions.push_back(op->action);
    if (one_in(6)) epilogue.end += 4;  // an instruction that does nothing
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const auto* freed = std::get_if<prologue::Allocate>(&actions[i]);
      std::size_t next = i;
      while (next < actions.size() && std::holds_alternative<prologue::Allocate>(actions[next])) ++next;
      const bool pointer_follows =
          next < actions.size() && std::holds_alternative<prologue::SetFramePointer>(actions[next]);
      if (freed != nullptr && by_fp && pointer_follows) continue;
      if (pauses && one_in(3)) epilogue.end += 4;
      const prologue::Action* last = epilogue.undone.empty() ? nullptr : &epilogue.undone.back().action;
      const auto* sum = last != nullptr ? std::get_if<prologue::Allocate>(last) : nullptr;
      const bool joined = sums && freed != nullptr && sum != nullptr && sum->size + freed->size < 4096 &&
                          epilogue.undone.back().end == epilogue.end;
      if (!joined) epilogue.end += 4;
      epilogue.undone.push_back({epilogue.end, actions[i]});
    }
    epilogue.end += 4;
    if (one_in(10)) epilogue.end += 4;
    return epilogue;
  }

  void add_part(Prologue& f) {
    body();
    prologue::Part part{at_, at_, {}, {}};
    body();
    saves(part.ops, slots(false), false);
    body();
    if (!f.ops.empty() || one_in(2)) {
      if (one_in(3)) {
        std::vector<prologue::Op> all = f.ops;
        all.insert(all.end(), part.ops.begin(), part.ops.end());
        part.epilogues.push_back(epilogue(all));
        at_ = part.epilogues.back().end;
        body();
      }
    }
    if (!one_in(4)) {
      prologue::Epilogue leave = epilogue(part.ops);
      leave.end = leave.undone.back().end + (one_in(2) ? 4 : 0);
      part.epilogues.push_back(leave);
      at_ = leave.end;
    } else {
      at_ += 4;
    }
    part.end = at_;
    f.parts.push_back(part);
    // What the part saves may be saved again, as none of it stays.
  }

  std::mt19937_64 random_;
  std::uint32_t at_ = 0;
  std::vector<RegisterNumber> used_;
};

}  // namespace windlass::test
