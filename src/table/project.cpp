#include "table/project.h"

#include "table/trace_expression.h"

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
    if (const auto* reg = std::get_if<CfaRegister>(&row.cfa))
      cfa_ = {Kind::kRegister, 0, reg->reg, reg->offset};
    else
      cfa_ = recognise(std::get<CfaExpression>(row.cfa).expression);
    has_cfa_ = cfa_.kind != Kind::kOther && fits<std::int32_t>(cfa_.offset) && is_register(cfa_.reg);
  }

  [[nodiscard]] TraceRule rule(std::uint8_t x_reg) const {
    TraceRule rule{};
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
    rule.flags = ((row_.signal_frame ? WL_RULE_SIGNAL : 0) | (row_.return_signed ? WL_RULE_SIGNED : 0)) & 15;
    return rule;
  }

 private:
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
  [[nodiscard]] ProjectedRegister at_expression(ByteView expression, BaseSettler& bases) const {
    const SimpleExpression simple = recognise(expression);
    if (simple.kind != Kind::kRegister || !is_register(simple.reg) || !fits<std::int16_t>(simple.offset))
      return {0, 0, false};
    const auto kind = bases.kind(simple.reg);
    return kind ? with_offset(*kind, simple.offset) : ProjectedRegister{0, 0, false};
  }
  [[nodiscard]] ProjectedRegister project(const RegisterRule& rule, BaseSettler& bases) const {
    if (std::holds_alternative<SameValue>(rule)) return {};
    if (std::holds_alternative<Undefined>(rule)) return {WL_REG_UNDEFINED, 0, true};
    if (const auto* at = std::get_if<AtCfa>(&rule)) return with_offset(WL_REG_CFA, at->offset);
    if (const auto* value = std::get_if<CfaValue>(&rule)) return with_offset(WL_REG_CFA_VALUE, value->offset);
    if (const auto* in = std::get_if<InRegister>(&rule))
      return is_register(in->reg) ? with_offset(WL_REG_IN_REG, in->reg) : ProjectedRegister{0, 0, false};
    if (const auto* at = std::get_if<AtExpression>(&rule)) return at_expression(at->expression, bases);
    const SimpleExpression simple = recognise(std::get<ExpressionValue>(rule).expression);
    if (simple.kind != Kind::kRegister || simple.offset != 0 || !is_register(simple.reg)) return {0, 0, false};
    return with_offset(WL_REG_IN_REG, static_cast<std::int64_t>(simple.reg));
  }

  const FrameRow& row_;
  Architecture architecture_;
  SimpleExpression cfa_;
  bool has_cfa_ = false;
};

}  // namespace

TraceRule project(const FrameRow& row, Architecture architecture, std::uint8_t x_reg) {
  return Projection(row, architecture).rule(x_reg);
}

}  // namespace windlass::table
