// Expressions: the value in rax, doubles by their bits. What has to outlive a call is in a temporary slot.
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
  if (result) load(x86::rax, static_cast<Word>(*result));
  return result.has_value();
}

void Generator::operand(const Expression& left, const Expression& right) {
  value(left);
  if (tier_ > 0 && is_simple(right)) {
    a_.mov(x86::rdx, x86::rax);
    value(right);  // which changes rax alone
    a_.mov(x86::rcx, x86::rax);
    a_.mov(x86::rax, x86::rdx);
    return;
  }
  const bool reference = left.type->is_reference();
  const int kept = push_temp(reference);
  a_.mov(slot(kept), x86::rax);
  value(right);
  a_.mov(x86::rcx, x86::rax);
  a_.mov(x86::rax, slot(kept));
  pop_temp(reference);
}

// Their values, each in a temporary slot: what comes later may call.
std::vector<int> Generator::keep(const Values& values) {
  std::vector<int> kept;
  for (const Expression* each : values) {
    value(*each);
    kept.push_back(push_temp(each->type->is_reference()));
    a_.mov(slot(kept.back()), x86::rax);
  }
  return kept;
}

void Generator::drop(const Values& values) {
  for (const Expression* each : values) pop_temp(each->type->is_reference());
}

void Generator::name(const Expression& e) {
  if (e.place == Expression::kCaptured) {
    a_.mov(x86::rax, slot(environment_));
    a_.mov(x86::rax, x86::qword_ptr(x86::rax, 16 + 8 * e.index));
  } else if (const auto reg = register_of(e.index)) {
    a_.mov(x86::rax, *reg);
  } else {
    a_.mov(x86::rax, slot(slot_of_local(e.index)));
  }
}

// ---- operators ----------------------------------------------------------------------------------------------------

void Generator::real(const Expression& e) {
  a_.movq(x86::xmm0, x86::rax);
  a_.movq(x86::xmm1, x86::rcx);
  switch (e.text[0]) {
    case '+': a_.addsd(x86::xmm0, x86::xmm1); break;
    case '-': a_.subsd(x86::xmm0, x86::xmm1); break;
    case '*': a_.mulsd(x86::xmm0, x86::xmm1); break;
    default: a_.divsd(x86::xmm0, x86::xmm1); break;
  }
  a_.movq(x86::rax, x86::xmm0);
}

void Generator::arithmetic(const Expression& e) {
  switch (e.text[0]) {
    case '+': a_.add(x86::rax, x86::rcx); return;
    case '-': a_.sub(x86::rax, x86::rcx); return;
    case '*': a_.imul(x86::rax, x86::rcx); return;
    default: break;
  }
  // The least integer by -1 is a fault of the processor: by negation it is itself.
  const asmjit::Label divides = a_.newLabel(), done = a_.newLabel();
  a_.test(x86::rcx, x86::rcx);
  a_.jz(trap(helpers::kDivision));
  a_.cmp(x86::rcx, -1);
  a_.jne(divides);
  e.text == "/" ? a_.neg(x86::rax) : a_.xor_(x86::eax, x86::eax);
  a_.jmp(done);
  a_.bind(divides);
  a_.cqo();
  a_.idiv(x86::rcx);
  if (e.text == "%") a_.mov(x86::rax, x86::rdx);
  a_.bind(done);
}

void Generator::compare(const Expression& e) {
  const TypeRef type = e.kids[0]->type;
  if (type->kind == Kind::kString && e.kids[1]->type->kind == Kind::kString) {
    a_.mov(x86::rsi, x86::rax);
    a_.mov(x86::rdx, x86::rcx);
    call_helper(helpers::equal);
    if (e.text == "!=") a_.xor_(x86::eax, 1);
    return;
  }
  if (type->kind == Kind::kDouble) {
    // Swapped for < and <=, so that a NaN is neither; == is ordered, != is not.
    const bool swapped = e.text[0] == '<';
    a_.movq(swapped ? x86::xmm1 : x86::xmm0, x86::rax);
    a_.movq(swapped ? x86::xmm0 : x86::xmm1, x86::rcx);
    a_.ucomisd(x86::xmm0, x86::xmm1);
    if (e.text == "<" || e.text == ">") a_.seta(x86::al);
    if (e.text == "<=" || e.text == ">=") a_.setae(x86::al);
    if (e.text == "==") a_.sete(x86::al), a_.setnp(x86::cl), a_.and_(x86::al, x86::cl);
    if (e.text == "!=") a_.setne(x86::al), a_.setp(x86::cl), a_.or_(x86::al, x86::cl);
  } else {
    a_.cmp(x86::rax, x86::rcx);
    if (e.text == "<") a_.setl(x86::al);
    if (e.text == "<=") a_.setle(x86::al);
    if (e.text == ">") a_.setg(x86::al);
    if (e.text == ">=") a_.setge(x86::al);
    if (e.text == "==") a_.sete(x86::al);
    if (e.text == "!=") a_.setne(x86::al);
  }
  a_.movzx(x86::eax, x86::al);
}

void Generator::logical(const Expression& e) {
  const asmjit::Label end = a_.newLabel();
  value(*e.kids[0]);
  a_.test(x86::rax, x86::rax);
  e.text == "&&" ? a_.jz(end) : a_.jnz(end);
  value(*e.kids[1]);
  a_.bind(end);
}

void Generator::binary(const Expression& e) {
  if (folded(e)) return;
  if (e.text == "&&" || e.text == "||") return logical(e);
  operand(*e.kids[0], *e.kids[1]);
  if (e.type->kind == Kind::kBool) return compare(e);
  if (e.type->kind == Kind::kDouble) return real(e);
  if (e.type->kind == Kind::kInt) return arithmetic(e);
  a_.mov(x86::rsi, x86::rax);
  a_.mov(x86::rdx, x86::rcx);
  call_helper(helpers::join);
}

void Generator::unary(const Expression& e) {
  value(*e.kids[0]);
  if (e.text == "!")
    a_.xor_(x86::rax, 1);
  else if (e.type->kind == Kind::kDouble)
    a_.btc(x86::rax, 63);
  else
    a_.neg(x86::rax);
}

// ---- objects ------------------------------------------------------------------------------------------------------

// Array in rax, index in rcx: checked.
void Generator::element_at() {
  a_.test(x86::rax, x86::rax);
  a_.jz(trap(helpers::kNull));
  a_.cmp(x86::rcx, x86::qword_ptr(x86::rax, 8));
  a_.jae(trap(helpers::kBounds));
}

// Values first, then the object, as an allocation may move what they are. `first` goes to the first word behind the
// header, if the values begin behind that.
void Generator::make_filled(const TypeInfo& type, const Values& values, Word first, int offset) {
  const std::vector<int> kept = keep(values);
  load(x86::rsi, reinterpret_cast<Word>(&type));
  load(x86::rdx, offset == 16 && type.shape != TypeInfo::kFields ? values.size() : 0);
  call_helper(helpers::allocate);
  if (type.shape == TypeInfo::kFields && offset == 16) {
    load(x86::rcx, first);
    a_.mov(x86::qword_ptr(x86::rax, 8), x86::rcx);
  }
  for (std::size_t i = values.size(); i-- > 0;) {
    a_.mov(x86::rcx, slot(kept[i]));
    a_.mov(x86::qword_ptr(x86::rax, offset + 8 * static_cast<int>(i)), x86::rcx);
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
  a_.mov(x86::rdx, x86::rax);
  a_.cmp(x86::rdx, 1 << 28);
  a_.ja(trap(helpers::kBounds));
  load(x86::rsi, reinterpret_cast<Word>(&runtime_.array_of(e.type->element())));
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
  for (std::size_t i = 0; i < kept.size(); ++i) a_.mov(kArguments[i], slot(kept[i]));
  drop(values);
  if (closure) {
    a_.test(x86::rdi, x86::rdi);
    a_.jz(trap(helpers::kNull));
    a_.mov(x86::rax, x86::qword_ptr(x86::rdi, 8));
  } else {
    load(x86::rax, reinterpret_cast<Word>(e.target->cell));
  }
  a_.call(x86::qword_ptr(x86::rax, offsetof(Cell, entry)));
  site();
}

void Generator::builtin(const Expression& e) {
  const auto which = static_cast<Builtin>(e.index);
  const Values values = kids(e, 1);
  const std::vector<int> kept = keep(values);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    a_.mov(kArguments[i + 1], slot(kept[i]));
    if (values[i]->type->is_reference()) {
      a_.test(kArguments[i + 1], kArguments[i + 1]);
      a_.jz(trap(helpers::kNull));
    }
  }
  drop(values);
  const TypeRef type = values.empty() ? nullptr : values[0]->type;
  switch (which) {
    case Builtin::kPrint:
    case Builtin::kText:
      load(x86::rdx, static_cast<Word>(type->kind));
      which == Builtin::kPrint ? call_helper(helpers::print) : call_helper(helpers::text);
      break;
    case Builtin::kLength: a_.mov(x86::rax, x86::qword_ptr(x86::rsi, 8)); break;
    case Builtin::kToDouble:
      a_.cvtsi2sd(x86::xmm0, x86::rsi);
      a_.movq(x86::rax, x86::xmm0);
      break;
    case Builtin::kToInt:
      a_.movq(x86::xmm0, x86::rsi);
      a_.cvttsd2si(x86::rax, x86::xmm0);
      break;
    case Builtin::kSqrt:
      a_.movq(x86::xmm0, x86::rsi);
      a_.sqrtsd(x86::xmm0, x86::xmm0);
      a_.movq(x86::rax, x86::xmm0);
      break;
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
    case Op::kBool: load(x86::rax, static_cast<Word>(e.value)); break;
    case Op::kNull: a_.xor_(x86::eax, x86::eax); break;
    case Op::kString: load(x86::rax, reinterpret_cast<Word>(runtime_.literal(e.text))); break;
    case Op::kName: name(e); break;
    case Op::kUnary: unary(e); break;
    case Op::kBinary: binary(e); break;
    case Op::kCall: call(e); break;
    case Op::kField:
      value(*e.kids[0]);
      a_.test(x86::rax, x86::rax);
      a_.jz(trap(helpers::kNull));
      a_.mov(x86::rax, x86::qword_ptr(x86::rax, 8 + 8 * e.index));
      break;
    case Op::kIndex:
      operand(*e.kids[0], *e.kids[1]);
      element_at();
      a_.mov(x86::rax, x86::qword_ptr(x86::rax, x86::rcx, 3, 16));
      break;
    case Op::kNew:
      if (e.kids.empty()) {
        load(x86::rsi, reinterpret_cast<Word>(&runtime_.info(e.type)));
        a_.xor_(x86::edx, x86::edx);
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
