#include "lookup/table/linear_scan.h"

#include <cstring>
#include <map>
#include <optional>
#include <utility>

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
  bool away = false;  // rsp is another stack's: the extra register has this one's
  bool operator==(const Pushed&) const = default;

  [[nodiscard]] TraceRule rule(std::uint8_t x_reg) const {
    TraceRule rule{};
    if (!known) {
      rule.cfa_kind = WL_CFA_UNSUPPORTED;
      return rule;
    }
    rule.cfa_kind = WL_CFA_REG;
    rule.cfa_reg = away ? x_reg : x86_64::kRsp;
    rule.cfa_offset = static_cast<std::int32_t>(8 + size);
    rule.ra_kind = WL_REG_CFA;
    rule.ra_offset = -8;
    if (fp != 0) rule.fp_kind = WL_REG_CFA, rule.fp_offset = static_cast<std::int16_t>(-8 - fp);
    if (x != 0)
      rule.x_kind = WL_REG_CFA, rule.x_offset = static_cast<std::int16_t>(-8 - x);
    else if (away)
      rule.x_kind = WL_REG_UNDEFINED;
    return rule;
  }
  void apply(const StackEffect& effect, std::uint8_t x_reg) {
    size -= effect.delta;
    if (effect.kind == EffectKind::kPush && effect.reg == x86_64::kRbp && fp == 0) fp = size;
    if (effect.kind == EffectKind::kPush && effect.reg == x_reg && x == 0) x = size;
    if (fp > size) fp = 0;
    if (x > size) x = 0;
    known = known && !away && size >= 0 && size < kMost && size % 8 == 0;  // else it is data that was read, or aligned
  }
};

// mov reg, rsp
bool copies_rsp(ByteView code, std::uint8_t reg) {
  const std::uint8_t* bytes = code.u8();
  if (code.size() < 3 || (bytes[0] & 0xfe) != 0x48 || bytes[1] != 0x89 || (bytes[2] & 0xf8) != 0xe0) return false;
  return x86_64::dwarf_number((bytes[0] & 1U) << 3 | (bytes[2] & 7U)) == reg;
}

bool is_return(ByteView code) {
  const auto opcode = code.at<std::uint8_t>(0);
  return opcode && (*opcode == 0xc3 || *opcode == 0xc2);
}

// What has been pushed at `address`, by the next call whose frame is known, return, or jump that has popped something.
std::optional<std::int64_t> size_by_what_follows(ByteView code, std::uint64_t address, SizeBehindCall size_behind) {
  flow::StraightCode line(code, address, code.size());
  std::int64_t grown = 0;
  bool away = false;
  const auto known = [](std::int64_t size) {
    return size >= 0 && size < Pushed::kMost && size % 8 == 0 ? std::optional(size) : std::nullopt;
  };
  while (const auto effect = line.next()) {
    switch (effect->kind) {
      case EffectKind::kNone:
      case EffectKind::kBranch: break;
      case EffectKind::kMove:
      case EffectKind::kPush:
      case EffectKind::kPop: grown -= effect->delta; break;
      case EffectKind::kCall:
        if (const auto size = away ? std::nullopt : size_behind(address + line.end())) return known(*size - grown);
        break;
      case EffectKind::kUnknown:
      case EffectKind::kSet:
        if (away != (effect->kind == EffectKind::kSet)) return std::nullopt;
        away = !away;
        break;
      case EffectKind::kReturn:
        return is_return(*code.sub(line.offset(), code.size() - line.offset())) ? known(-grown) : std::nullopt;
      case EffectKind::kJump: return grown < 0 ? known(-grown) : std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace

void rows_of_bare_code(ByteView code, std::uint64_t address, std::uint8_t x_reg,
                       FunctionRef<bool(std::uint64_t)> starts_function, SizeBehindCall size_behind, RuleSink emit) {
  const std::uint64_t begin = address, end = address + code.size();
  Pushed now;
  std::optional<Pushed> told;
  std::map<std::uint64_t, Pushed> ahead;  // what branches take with them to addresses not reached yet
  bool copied = false;                    // by the instruction before
  bool ended = false;                     // with a jump or a return: the code here is reached another way
  while (address < end) {
    const ByteView rest = from(code, begin, address);
    while (!ahead.empty() && ahead.begin()->first < address) ahead.erase(ahead.begin());
    const bool arrived = !ahead.empty() && ahead.begin()->first == address;
    if (arrived) now = ahead.begin()->second;
    if ((ended || now != Pushed()) && starts_function(address))
      now = Pushed();
    else if (ended && !arrived)
      if (const auto size = size_by_what_follows(rest, address, size_behind); size && (*size != now.size || !now.known))
        now = Pushed(), now.size = *size;
    if (told != now) emit(address, now.rule(x_reg));
    told = now;
    const auto effect = flow::stack_effect(rest, address);
    const bool copied_before = std::exchange(copied, copies_rsp(rest, x_reg));
    address += effect ? effect->length : 1;
    ended = effect && (effect->kind == EffectKind::kJump || effect->kind == EffectKind::kReturn);
    if (!effect) {
      now = Pushed();
      continue;
    }
    switch (effect->kind) {
      case EffectKind::kCall:
        if (const auto size = now.away ? std::nullopt : size_behind(address); size && *size != now.size)
          now = Pushed(), now.size = *size;
        break;
      case EffectKind::kNone: now.known = now.known && !now.away; break;  // it may write the copy
      case EffectKind::kMove:
      case EffectKind::kPush:
      case EffectKind::kPop: now.apply(*effect, x_reg); break;
      case EffectKind::kSet:
        now.known = now.known && now.away && effect->reg == x_reg;
        now.away = false;
        break;
      case EffectKind::kUnknown:
        now.known = now.known && copied_before;
        now.away = now.known;
        break;
      case EffectKind::kBranch:
      case EffectKind::kJump:  // from a table, if anything is on the stack: what follows is a part of the function, too
        if (effect->target >= address && effect->target < end && now != Pushed())
          ahead.try_emplace(effect->target, now);
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
