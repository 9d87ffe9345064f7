// Expressions: the value in kValue, doubles by their bits. What has to outlive a call is in a temporary slot.
#include <bit>
#include <cmath>

#include "codegen.h"

namespace lilt {

namespace {

std::vector<const Expression*> kids(const Expression& e, std::size_t first = 0) {
  std::vector<const Expression*> all;
  for (std::size_t i = first; i < e.kids.size(); ++i) all.push_back(e.kids[i].get());
  return all;
}

std::optional<std::int64_t> fold(const std::string& sign, std::int64_t left, std::int64_t right) {
  const auto l = static_cast<Word>(left), r = static_cast<Word>(right);
  if (sign == "+") return static_cast<std::int64_t>(l + r);
  if (sign == "-") return static_cast<std::int64_t>(l - r);
  if (sign == "*") return static_cast<std::int64_t>(l * r);
  return std::nullopt;
}

Machine::Condition condition_of(const std::string& sign) {
  using enum Machine::Condition;
  if (sign == "<") return kLess;
  if (sign == "<=") return kLessEqual;
  if (sign == ">") return kGreater;
  if (sign == ">=") return kGreaterEqual;
  return sign == "==" ? kEqual : kNotEqual;
}

}  // namespace

bool Generator::is_simple(const Expression& e) const {
  return e.op == Op::kInt || e.op == Op::kDouble || e.op == Op::kBool || e.op == Op::kNull ||
         (e.op == Op::kName && e.place == Expression::kLocal);
}

// Tier 1 does with constants what can be done now.
bool Generator::folded(const Expression& e) {
  if (tier_ == 0 || e.op != Op::kBinary || e.type->kind != Kind::kInt) return false;
  if (e.kids[0]->op != Op::kInt || e.kids[1]->op != Op::kInt) return false;
  const auto result = fold(e.text, e.kids[0]->value, e.kids[1]->value);
  if (result) m_.load(kValue, static_cast<Word>(*result));
  return result.has_value();
}

void Generator::operand(const Expression& left, const Expression& right) {
  value(left);
  if (tier_ > 0 && is_simple(right)) {
    m_.move(kThird, kValue);
    value(right);  // which changes kValue alone
    m_.move(kOther, kValue);
    m_.move(kValue, kThird);
    return;
  }
  const bool reference = left.type->is_reference();
  const int kept = push_temp(reference);
  m_.store(slot(kept), kValue);
  value(right);
  m_.move(kOther, kValue);
  m_.load(kValue, slot(kept));
  pop_temp(reference);
}

// Their values, each in a temporary slot: what comes later may call.
std::vector<int> Generator::keep(const Values& values) {
  std::vector<int> kept;
  for (const Expression* each : values) {
    value(*each);
    kept.push_back(push_temp(each->type->is_reference()));
    m_.store(slot(kept.back()), kValue);
  }
  return kept;
}

void Generator::drop(const Values& values) {
  for (const Expression* each : values) pop_temp(each->type->is_reference());
}

void Generator::name(const Expression& e) {
  if (e.place == Expression::kCaptured) {
    m_.load(kValue, slot(environment_));
    m_.load(kValue, {kValue, 16 + 8 * e.index});
  } else if (const Preserved* reg = register_of(e.index)) {
    m_.move(kValue, reg->reg);
  } else {
    m_.load(kValue, slot(slot_of_local(e.index)));
  }
}

// ---- operators ----------------------------------------------------------------------------------------------------

void Generator::arithmetic(const Expression& e) {
  switch (e.text[0]) {
    case '+': m_.add(); return;
    case '-': m_.subtract(); return;
    case '*': m_.multiply(); return;
    default: m_.jump_if_zero(kOther, trap(helpers::kDivision));
  }
  e.text == "/" ? m_.divide() : m_.remainder();
}

void Generator::compare(const Expression& e) {
  const TypeRef type = e.kids[0]->type;
  if (type->kind == Kind::kString && e.kids[1]->type->kind == Kind::kString) {
    m_.move(kArguments[1], kValue);
    m_.move(kArguments[2], kOther);
    call_helper(helpers::equal);
    if (e.text == "!=") m_.invert();
    return;
  }
  const Machine::Condition condition = condition_of(e.text);
  type->kind == Kind::kDouble ? m_.compare_real(condition) : m_.compare(condition);
}

void Generator::logical(const Expression& e) {
  const Label end = m_.label();
  value(*e.kids[0]);
  e.text == "&&" ? m_.jump_if_zero(kValue, end) : m_.jump_unless_zero(kValue, end);
  value(*e.kids[1]);
  m_.bind(end);
}

void Generator::binary(const Expression& e) {
  if (folded(e)) return;
  if (e.text == "&&" || e.text == "||") return logical(e);
  operand(*e.kids[0], *e.kids[1]);
  if (e.type->kind == Kind::kBool) return compare(e);
  if (e.type->kind == Kind::kDouble) return m_.compute_real(e.text[0]);
  if (e.type->kind == Kind::kInt) return arithmetic(e);
  m_.move(kArguments[1], kValue);
  m_.move(kArguments[2], kOther);
  call_helper(helpers::join);
}

void Generator::unary(const Expression& e) {
  value(*e.kids[0]);
  if (e.text == "!")
    m_.invert();
  else if (e.type->kind == Kind::kDouble)
    m_.negate_real();
  else
    m_.negate();
}

// ---- objects ------------------------------------------------------------------------------------------------------

// Array in kValue, index in kOther: checked.
void Generator::element_at() {
  m_.jump_if_zero(kValue, trap(helpers::kNull));
  m_.jump_unless_below(kOther, {kValue, 8}, trap(helpers::kBounds));
}

// Values first, then the object, as an allocation may move what they are. `first` goes to the first word behind the
// header, if the values begin behind that.
void Generator::make_filled(const TypeInfo& type, const Values& values, Word first, int offset) {
  const std::vector<int> kept = keep(values);
  m_.load(kArguments[1], reinterpret_cast<Word>(&type));
  m_.load(kArguments[2], offset == 16 && type.shape != TypeInfo::kFields ? values.size() : 0);
  call_helper(helpers::allocate);
  if (type.shape == TypeInfo::kFields && offset == 16) {
    m_.load(kOther, first);
    m_.store({kValue, 8}, kOther);
  }
  for (std::size_t i = values.size(); i-- > 0;) {
    m_.load(kOther, slot(kept[i]));
    m_.store({kValue, offset + 8 * static_cast<int>(i)}, kOther);
  }
  drop(values);
}

void Generator::make(const Expression& e) {
  if (e.op == Op::kNew)
    make_filled(runtime_.info(e.type), kids(e), 0, 8);
  else
    make_filled(runtime_.array_of(e.type->element()), kids(e), 0, 16);
}

void Generator::make_array(const Expression& e) {
  value(*e.kids[0]);
  m_.move(kArguments[2], kValue);
  m_.jump_if_above(kArguments[2], 1 << 28, trap(helpers::kBounds));
  m_.load(kArguments[1], reinterpret_cast<Word>(&runtime_.array_of(e.type->element())));
  call_helper(helpers::allocate);
}

void Generator::make_closure(const Expression& e) {
  Values values;
  for (const auto& captured : e.lambda->captures) values.push_back(captured.from.get());
  make_filled(*e.lambda->cell->closure, values, reinterpret_cast<Word>(e.lambda->cell), 16);
}

// ---- calls --------------------------------------------------------------------------------------------------------

void Generator::call(const Expression& e) {
  if (e.place == Expression::kBuiltin) return builtin(e);
  const bool closure = e.place != Expression::kFunction;
  const Values values = kids(e, closure ? 0 : 1);
  const std::vector<int> kept = keep(values);
  for (std::size_t i = 0; i < kept.size(); ++i) m_.load(kArguments[i], slot(kept[i]));
  drop(values);
  if (closure) {
    m_.jump_if_zero(kArguments[0], trap(helpers::kNull));
    m_.load(kTarget, {kArguments[0], 8});
  } else {
    m_.load(kTarget, reinterpret_cast<Word>(e.target->cell));
  }
  m_.call({kTarget, offsetof(Cell, entry)});
  site();
}

void Generator::builtin(const Expression& e) {
  const auto which = static_cast<Builtin>(e.index);
  const Values values = kids(e, 1);
  const std::vector<int> kept = keep(values);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    m_.load(kArguments[i + 1], slot(kept[i]));
    if (values[i]->type->is_reference()) m_.jump_if_zero(kArguments[i + 1], trap(helpers::kNull));
  }
  drop(values);
  const TypeRef type = values.empty() ? nullptr : values[0]->type;
  switch (which) {
    case Builtin::kPrint:
    case Builtin::kText:
      m_.load(kArguments[2], static_cast<Word>(type->kind));
      which == Builtin::kPrint ? call_helper(helpers::print) : call_helper(helpers::text);
      break;
    case Builtin::kLength: m_.load(kValue, {kArguments[1], 8}); break;
    case Builtin::kToDouble: m_.move(kValue, kArguments[1]), m_.to_real(); break;
    case Builtin::kToInt: m_.move(kValue, kArguments[1]), m_.to_integer(); break;
    case Builtin::kSqrt: m_.move(kValue, kArguments[1]), m_.square_root(); break;
    case Builtin::kSubstring: call_helper(helpers::substring); break;
    case Builtin::kCharacter: call_helper(helpers::character); break;
    case Builtin::kSort: call_helper(helpers::sort); break;
    case Builtin::kParallel: call_helper(helpers::parallel); break;
    case Builtin::kCollect: call_helper(helpers::collect); break;
    case Builtin::kDepth: call_helper(helpers::depth); break;
    case Builtin::kClock: call_helper(helpers::clock); break;
    case Builtin::kCount: break;
  }
}

void Generator::value(const Expression& e) {
  switch (e.op) {
    case Op::kInt:
    case Op::kDouble:
    case Op::kBool: m_.load(kValue, static_cast<Word>(e.value)); break;
    case Op::kNull: m_.load(kValue, 0); break;
    case Op::kString: m_.load(kValue, reinterpret_cast<Word>(runtime_.literal(e.text))); break;
    case Op::kName: name(e); break;
    case Op::kUnary: unary(e); break;
    case Op::kBinary: binary(e); break;
    case Op::kCall: call(e); break;
    case Op::kField:
      value(*e.kids[0]);
      m_.jump_if_zero(kValue, trap(helpers::kNull));
      m_.load(kValue, {kValue, 8 + 8 * e.index});
      break;
    case Op::kIndex:
      operand(*e.kids[0], *e.kids[1]);
      element_at();
      m_.load_element(kValue);
      break;
    case Op::kNew:
      if (e.kids.empty()) {
        m_.load(kArguments[1], reinterpret_cast<Word>(&runtime_.info(e.type)));
        m_.load(kArguments[2], 0);
        call_helper(helpers::allocate);
        break;
      }
      make(e);
      break;
    case Op::kNewArray: make_array(e); break;
    case Op::kArrayOf: make(e); break;
    case Op::kLambda: make_closure(e); break;
  }
}

}  // namespace lilt
