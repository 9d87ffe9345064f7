#include "lookup/table/project.h"

#include <optional>

#include "base/registers.h"
#include "formats/dwarf/switched_stack.h"
#include "lookup/table/trace_expression.h"

namespace windlass::table {

namespace {

using Kind = SimpleExpression::Kind;

template <typename Narrow>
bool fits(std::int64_t value) {
  return static_cast<Narrow>(value) == value;
}

struct ProjectedRegister {
  std::uint8_t kind = WL_REG_SAME;
  std::int16_t offset = 0;
  bool known = true;  // false: there is a rule, and a table row cannot hold it
};

std::uint8_t kind_of(const ProjectedRegister& reg) { return reg.known ? reg.kind : std::uint8_t{WL_REG_UNDEFINED}; }

class Projection {
 public:
  Projection(const FrameRow& row, Architecture architecture) : row_(row), architecture_(architecture) {
    switch (row.cfa.kind()) {
      case CfaRule::kRegister: cfa_ = {Kind::kRegister, 0, row.cfa.reg(), row.cfa.offset()}; break;
      case CfaRule::kLoaded:
        counts_words_ = row.cfa.addend() > UINT8_MAX && row.cfa.addend() % 8 == 0;
        if (const int argument = row.cfa.addend() / (counts_words_ ? 8 : 1); fits<std::uint8_t>(argument))
          cfa_ = {Kind::kLoad, static_cast<std::uint8_t>(argument), row.cfa.reg(), row.cfa.offset()};
        break;
      case CfaRule::kExpression:
        cfa_ = recognise(row.expression(row.cfa));
        if (cfa_.kind == Kind::kOther && row.return_address.is(RegisterRule::kExpressionValue))
          switched_ = dwarf::switched_stack(row.expression(row.cfa), row.expression(row.return_address));
        if (cfa_.kind == Kind::kOther) movable_ = dwarf::movable_stack(row.expression(row.cfa));
        break;
    }
    has_cfa_ = cfa_.kind != Kind::kOther && fits<std::int32_t>(cfa_.offset) && is_register(cfa_.reg);
  }

  [[nodiscard]] TraceRule rule(std::uint8_t x_reg) const {
    TraceRule rule{};
    if (switched_ && by_thread(*switched_, rule)) return rule;
    if (movable_ && by_upper_end(*movable_, rule)) return rule;
    rule.cfa_kind = WL_CFA_UNSUPPORTED;
    if (has_cfa_) {
      rule.cfa_kind = cfa_.kind == Kind::kRegister ? WL_CFA_REG : cfa_.kind == Kind::kLoad ? WL_CFA_MEM : WL_CFA_PLT;
      rule.cfa_reg = static_cast<std::uint8_t>(cfa_.reg);
      rule.cfa_offset = static_cast<std::int32_t>(cfa_.offset);
      rule.cfa_arg = cfa_.argument;
    }
    BaseSettler bases(rule, frame_pointer(architecture_));
    const ProjectedRegister ra = project(row_.return_address, bases);
    const ProjectedRegister fp = project(frame_pointer(architecture_), bases), x = project(x_reg, bases);
    if (!ra.known) {
      rule.cfa_kind = WL_CFA_UNSUPPORTED;
      rule.cfa_reg = 0, rule.cfa_offset = 0, rule.cfa_arg = 0;
    }
    rule.ra_kind = kind_of(ra) & 15;
    rule.ra_offset = ra.offset;
    rule.fp_kind = kind_of(fp) & 15;
    rule.fp_offset = fp.offset;
    rule.x_kind = kind_of(x) & 15;
    rule.x_offset = x.offset;
    rule.flags = ((row_.signal_frame ? WL_RULE_SIGNAL : 0) | (row_.return_signed ? WL_RULE_SIGNED : 0) |
                  (dwarf::leaves_switched_stack(row_) ? WL_RULE_LEFT : 0) | (counts_words_ ? WL_RULE_WORDS : 0)) &
                 15;
    return rule;
  }

 private:
  static constexpr std::uint64_t kWord = 8;

  // Of an offset and an addend that are known to fit.
  static wl_last_load last_load(std::uint64_t offset, std::uint64_t addend) {
    wl_last_load last{};
    last.addend = addend / kWord & 7;
    last.words = offset / kWord & 0x1fff;
    return last;
  }
  // False: it has no room for these numbers.
  bool by_thread(const dwarf::SwitchedStack& stack, TraceRule& rule) const {
    constexpr std::uint64_t kMost = 255 * kWord;
    const auto& [first, second, third] = stack.offsets;
    if (!fits<std::int32_t>(stack.thread) || first % kWord != 0 || first > kMost || third % kWord != 0 ||
        third > kMost || second % kWord != 0 || second >= 1 << 15 || stack.addend % kWord != 0 ||
        stack.addend >= kWord * kWord)
      return false;
    BaseSettler bases(rule, frame_pointer(architecture_));
    rule.cfa_kind = WL_CFA_THREAD;
    const ProjectedRegister fp = project(frame_pointer(architecture_), bases);
    rule.way_first = static_cast<std::int32_t>(stack.thread);
    rule.way_second = static_cast<std::uint8_t>(first / kWord);
    rule.way_sp = static_cast<std::uint8_t>(third / kWord);
    rule.x_kind = WL_REG_UNDEFINED;
    rule.last = last_load(second, stack.addend);
    rule.ra_kind = stack.saves_pc ? WL_REG_BASE : WL_REG_CFA;
    rule.ra_offset = static_cast<std::int16_t>(stack.saves_pc ? 8 : -8);
    rule.fp_kind = kind_of(fp) & 15;
    rule.fp_offset = fp.offset;
    return true;
  }
  bool by_upper_end(const dwarf::MovableStack& stack, TraceRule& rule) const {
    const auto is_word = [](std::uint64_t value, std::uint64_t end) { return value % kWord == 0 && value < end; };
    if (!is_word(stack.owner, 1 << 15) || !is_word(stack.top, 256 * kWord) || !is_word(stack.depth, 1 << 15) ||
        !is_word(stack.addend, kWord * kWord) || !row_.return_address.is(RegisterRule::kAtCfa) ||
        !fits<std::int16_t>(row_.return_address.offset()))
      return false;
    BaseSettler bases(rule, frame_pointer(architecture_));
    rule.cfa_kind = WL_CFA_MOVABLE;
    rule.cfa_reg = x86_64::kRsp;
    const ProjectedRegister fp = project(frame_pointer(architecture_), bases);
    rule.owner = static_cast<std::int32_t>(stack.owner);
    rule.top = static_cast<std::uint8_t>(stack.top / kWord);
    rule.x_kind = WL_REG_UNDEFINED;
    rule.last = last_load(stack.depth, stack.addend);
    rule.ra_kind = WL_REG_CFA;
    rule.ra_offset = static_cast<std::int16_t>(row_.return_address.offset());
    rule.fp_kind = kind_of(fp) & 15;
    rule.fp_offset = fp.offset;
    return true;
  }
  [[nodiscard]] bool is_register(std::uint64_t reg) const {
    return reg < (architecture_ == Architecture::kX86_64 ? 17u : 32u);
  }
  [[nodiscard]] ProjectedRegister project(RegisterNumber reg, BaseSettler& bases) const {
    const RegisterRule* rule = reg == WL_NO_XREG ? nullptr : row_.registers.find(reg);
    return rule != nullptr ? project(*rule, bases) : ProjectedRegister{};
  }
  [[nodiscard]] static ProjectedRegister with_offset(std::uint8_t kind, std::int64_t offset) {
    if (!fits<std::int16_t>(offset)) return {0, 0, false};
    return {kind, static_cast<std::int16_t>(offset), true};
  }
  // [reg + offset]
  [[nodiscard]] ProjectedRegister at_register(std::uint64_t reg, std::int64_t offset, BaseSettler& bases) const {
    if (!is_register(reg) || !fits<std::int16_t>(offset)) return {0, 0, false};
    const auto kind = bases.kind(reg);
    return kind ? with_offset(*kind, offset) : ProjectedRegister{0, 0, false};
  }
  // reg + offset
  [[nodiscard]] ProjectedRegister register_value(std::uint64_t reg, std::int64_t offset) const {
    if (!is_register(reg) || offset != 0) return {0, 0, false};
    return with_offset(WL_REG_IN_REG, static_cast<std::int64_t>(reg));
  }
  [[nodiscard]] ProjectedRegister project(const RegisterRule& rule, BaseSettler& bases) const {
    const SimpleExpression simple = rule.is_expression() ? recognise(row_.expression(rule)) : SimpleExpression{};
    const bool is_sum = simple.kind == Kind::kRegister;
    switch (rule.kind()) {
      case RegisterRule::kSameValue: return {};
      case RegisterRule::kUndefined: return {WL_REG_UNDEFINED, 0, true};
      case RegisterRule::kAtCfa: return with_offset(WL_REG_CFA, rule.offset());
      case RegisterRule::kCfaValue: return with_offset(WL_REG_CFA_VALUE, rule.offset());
      case RegisterRule::kInRegister: return register_value(rule.reg(), 0);
      case RegisterRule::kAtRegister: return at_register(rule.reg(), rule.offset(), bases);
      case RegisterRule::kRegisterValue: return register_value(rule.reg(), rule.offset());
      case RegisterRule::kAtExpression:
        if (is_sum) return at_register(simple.reg, simple.offset, bases);
        break;
      case RegisterRule::kExpressionValue:
        if (is_sum) return register_value(simple.reg, simple.offset);
        break;
    }
    return {0, 0, false};
  }

  const FrameRow& row_;
  Architecture architecture_;
  SimpleExpression cfa_;
  bool counts_words_ = false;  // WL_RULE_WORDS
  std::optional<dwarf::SwitchedStack> switched_;
  std::optional<dwarf::MovableStack> movable_;
  bool has_cfa_ = false;
};

}  // namespace

TraceRule project(const FrameRow& row, Architecture architecture, std::uint8_t x_reg) {
  return Projection(row, architecture).rule(x_reg);
}

}  // namespace windlass::table
