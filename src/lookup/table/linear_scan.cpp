#include "lookup/table/linear_scan.h"

#include <cstring>
#include <map>
#include <optional>

#include "base/registers.h"
#include "flow/stack_effect.h"

namespace windlass::table {
namespace {

using flow::StackEffect;
using EffectKind = StackEffect::Kind;

// The rest of `code` from `address` on.
ByteView from(ByteView code, std::uint64_t begin, std::uint64_t address) {
  return *code.sub(address - begin, code.size() - (address - begin));
}

// What a function has on the stack above its return address.
struct Pushed {
  static constexpr std::int64_t kMost = 1 << 15;  // a rule's offsets have 16 bits
  std::int64_t size = 0;
  std::int64_t fp = 0, x = 0;  // size when rbp, the extra register had been pushed; 0: not
  bool known = true;
  bool operator==(const Pushed&) const = default;

  [[nodiscard]] TraceRule rule() const {
    TraceRule rule{};
    if (!known) {
      rule.cfa_kind = WL_CFA_UNSUPPORTED;
      return rule;
    }
    rule.cfa_kind = WL_CFA_REG;
    rule.cfa_reg = x86_64::kRsp;
    rule.cfa_offset = static_cast<std::int32_t>(8 + size);
    rule.ra_kind = WL_REG_CFA;
    rule.ra_offset = -8;
    if (fp != 0) rule.fp_kind = WL_REG_CFA, rule.fp_offset = static_cast<std::int16_t>(-8 - fp);
    if (x != 0) rule.x_kind = WL_REG_CFA, rule.x_offset = static_cast<std::int16_t>(-8 - x);
    return rule;
  }
  void apply(const StackEffect& effect, std::uint8_t x_reg) {
    size -= effect.delta;
    if (effect.kind == EffectKind::kPush && effect.reg == x86_64::kRbp && fp == 0) fp = size;
    if (effect.kind == EffectKind::kPush && effect.reg == x_reg && x == 0) x = size;
    if (fp > size) fp = 0;
    if (x > size) x = 0;
    known = known && size >= 0 && size < kMost && size % 8 == 0;  // else it is data that was read, or aligned
  }
};

}  // namespace

void rows_of_bare_code(ByteView code, std::uint64_t address, std::uint8_t x_reg,
                       FunctionRef<bool(std::uint64_t)> starts_function, RuleSink emit) {
  const std::uint64_t begin = address, end = address + code.size();
  Pushed now;
  std::optional<Pushed> told;
  std::map<std::uint64_t, Pushed> ahead;  // what branches take with them to addresses not reached yet
  while (address < end) {
    if (const auto arrived = ahead.find(address); arrived != ahead.end()) now = arrived->second;
    if (now != Pushed() && starts_function(address)) now = Pushed();
    if (told != now) emit(address, now.rule());
    told = now;
    const auto effect = flow::stack_effect(from(code, begin, address), address);
    address += effect ? effect->length : 1;
    if (!effect) {
      now = Pushed();
      continue;
    }
    switch (effect->kind) {
      case EffectKind::kNone:
      case EffectKind::kCall: break;
      case EffectKind::kMove:
      case EffectKind::kPush:
      case EffectKind::kPop: now.apply(*effect, x_reg); break;
      case EffectKind::kSet:
      case EffectKind::kUnknown: now.known = false; break;
      case EffectKind::kBranch:
      case EffectKind::kJump:
        if (effect->target >= address && effect->target < end && now != Pushed())
          ahead.try_emplace(effect->target, now);
        if (effect->kind == EffectKind::kJump) now = Pushed();
        break;
      case EffectKind::kReturn: now = Pushed(); break;
    }
  }
}

void each_copy_in_rsp(ByteView code, std::uint64_t address, ByteView function, std::uint64_t function_address,
                      RegisterNumber reg, FunctionRef<void(std::uint64_t, std::uint64_t)> copy) {
  const auto entered_from_outside = [&](std::uint64_t begin, std::uint64_t end) {
    flow::StraightCode line(function, function_address, function.size());
    while (const auto effect = line.next()) {
      const std::uint64_t at = function_address + line.offset();
      const bool inside = at >= begin && at < end;
      const bool jumps = effect->kind == EffectKind::kBranch || effect->kind == EffectKind::kJump;
      if (jumps && !inside && effect->target >= begin && effect->target < end) return true;
    }
    return line.failed();
  };
  std::uint64_t begin = 0;  // of the piece; 0: none
  const auto close = [&](std::uint64_t at) {
    if (begin != 0 && begin < at && !entered_from_outside(begin, at)) copy(begin, at);
    begin = 0;
  };
  flow::StraightCode line(code, address, code.size());
  while (const auto effect = line.next()) {
    const std::uint64_t behind = address + line.end();
    if (effect->kind == EffectKind::kSet && effect->reg == reg) {
      if (begin == 0) begin = behind;
    } else if (effect->kind != EffectKind::kNone && effect->kind != EffectKind::kCall &&
               effect->kind != EffectKind::kBranch) {
      close(behind);  // the row's end, or rsp is another one from here on
    }
  }
  close(address + code.size());
}

}  // namespace windlass::table
