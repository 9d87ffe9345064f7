// Statements. What a try leaves to do after an exception is in funclets; on the way out without one its finally is
// called as any function.
#include "codegen.h"

namespace lilt {

using namespace windlass::managed;

void Generator::store_local(int local) {
  if (const Preserved* reg = register_of(local))
    m_.move(reg->reg, kValue);
  else
    m_.store(slot(slot_of_local(local)), kValue);
}

void Generator::assign(const Statement& s) {
  const Expression& to = *s.to;
  if (to.op == Op::kName) return value(*s.value), store_local(to.index);
  const bool field = to.op == Op::kField;
  value(*to.kids[0]);
  const int object = push_temp(true);
  m_.store(slot(object), kValue);
  int index = 0;
  if (!field) {
    value(*to.kids[1]);
    index = push_temp(false);
    m_.store(slot(index), kValue);
  }
  value(*s.value);
  m_.move(kThird, kValue);
  m_.load(kValue, slot(object));
  if (field) {
    m_.jump_if_zero(kValue, trap(helpers::kNull));
    m_.store({kValue, 8 + 8 * to.index}, kThird);
  } else {
    m_.load(kOther, slot(index));
    element_at();
    m_.store_element(kThird);
    pop_temp(false);
  }
  pop_temp(true);
}

void Generator::if_statement(const Statement& s) {
  const Label other = m_.label(), end = m_.label();
  value(*s.value);
  m_.jump_if_zero(kValue, other);
  block(s.body);
  m_.jump(end);
  m_.bind(other);
  block(s.other);
  m_.bind(end);
}

// A loop asks at each turn whether threads are to stop: a method that calls nothing does not return either.
void Generator::while_statement(const Statement& s) {
  const Label again = m_.label(), end = m_.label(), go_on = m_.label();
  m_.bind(again);
  value(*s.value);
  m_.jump_if_zero(kValue, end);
  block(s.body);
  m_.jump_if_clear(runtime_.suspender.pending(), go_on);
  call_helper(helpers::poll);
  m_.bind(go_on);
  m_.jump(again);
  m_.bind(end);
}

// ---- try ----------------------------------------------------------------------------------------------------------

// With what is to be returned in its slot: the finallys around, then out of the method, or of the funclet with the
// address at which its method goes on to return.
void Generator::leave() {
  for (std::size_t i = regions_.size(); i-- > 0;)
    if (regions_[i].piece == current_ && regions_[i].has_finally) call_finally(regions_[i]);
  if (in_funclet())
    m_.address_of(kValue, part().returns);
  else
    m_.load(kValue, slot(return_slot()));
  m_.jump(epilogue_);
}

void Generator::return_statement(const Statement& s) {
  if (s.value) value(*s.value);
  bool cleanups = in_funclet();
  for (const Region& region : regions_) cleanups |= region.piece == current_ && region.has_finally;
  if (!cleanups) return m_.jump(epilogue_);
  if (s.value) m_.store(slot(return_slot()), kValue);
  leave();
}

void Generator::try_body(const Statement& s, const Label& normal, const Label& returns) {
  ClauseAt clause;
  clause.clause.begin = m_.here() - part().at;
  begin_traps();
  block(s.body);
  const Label over = m_.label();
  m_.jump(over);
  end_traps();
  clause.clause.end = m_.here() - part().at;
  for (const Catch& each : s.catches) {
    clause.handler = m_.label();
    clause.clause.kind = each.when ? ClauseKind::kFilter : ClauseKind::kCatch;
    clause.clause.user = reinterpret_cast<Word>(&runtime_.info(each.type));
    if (each.when) clause.filter = m_.label();
    part().clauses.push_back(clause);
    const int catching = new_part(Funclet::kCatch);
    parts_[static_cast<std::size_t>(catching)].begin = clause.handler;
    pending_.push_back({catching, &s, &each, normal, returns});
    if (!each.when) continue;
    const int filter = new_part(Funclet::kFilter);
    parts_[static_cast<std::size_t>(filter)].begin = clause.filter;
    pending_.push_back({filter, &s, &each, {}, {}});
  }
  m_.nop();  // so that the finally, which cleans up after the catches, protects more than they do
  m_.bind(over);
  if (!s.has_finally) return;
  clause.clause.end = m_.here() - part().at;
  clause.clause.kind = ClauseKind::kFinally;
  clause.handler = regions_.back().finally_code;
  part().clauses.push_back(clause);
}

void Generator::try_statement(const Statement& s) {
  Region region{.finally_code = m_.label(), .has_finally = s.has_finally, .piece = current_};
  const Label normal = m_.label(), returns = m_.label(), skip = m_.label();
  if (s.has_finally) {
    const int part = new_part(Funclet::kFinally);
    parts_[static_cast<std::size_t>(part)].begin = region.finally_code;
    pending_.push_back({part, &s, nullptr, {}, {}});
  }
  regions_.push_back(region);
  try_body(s, normal, returns);
  m_.jump(skip);
  // Where catches go on: what the exception left on the shadow stack is no more.
  const auto landing = [&](const Label& label) {
    m_.bind(label);
    if (!runtime_.options.check_stacks) return;
    pop_shadow();
    m_.increment({kThread.reg, offsetof(Thread, depth)});
  };
  landing(returns);
  leave();
  landing(normal);
  m_.bind(skip);
  regions_.pop_back();
  if (s.has_finally) call_finally(region);
}

void Generator::funclet(const Pending& pending) {
  current_ = pending.piece;
  part().at = m_.here();
  part().returns = pending.returns;
  epilogue_ = m_.label();
  m_.bind(part().begin);
  prologue_of_funclet();
  begin_traps();
  if (pending.clause != nullptr) {
    if (part().funclet == Funclet::kFilter) {
      m_.load(kOther, reinterpret_cast<Word>(&runtime_.info(pending.clause->type)));
      m_.load(kValue, 0);
      m_.jump_unless_equal({kArguments[1], 0}, kOther, epilogue_);
    }
    m_.store(slot(slot_of_local(pending.clause->local)), kArguments[1]);
    if (part().funclet == Funclet::kFilter)
      value(*pending.clause->when);
    else
      block(pending.clause->body);
  } else {
    block(pending.statement->other);
  }
  if (part().funclet == Funclet::kCatch) m_.address_of(kValue, pending.normal);
  m_.jump(epilogue_);
  end_traps();
  m_.bind(epilogue_);
  epilogue();
}

// ---- all ----------------------------------------------------------------------------------------------------------

void Generator::statement(const Statement& s) {
  switch (s.what) {
    case Do::kLet:
      value(*s.value);
      store_local(s.local);
      break;
    case Do::kAssign: assign(s); break;
    case Do::kExpression: value(*s.value); break;
    case Do::kIf: if_statement(s); break;
    case Do::kWhile: while_statement(s); break;
    case Do::kReturn: return_statement(s); break;
    case Do::kThrow:
      if (s.value) {
        value(*s.value);
        m_.jump_if_zero(kValue, trap(helpers::kNull));
        m_.move(kArguments[1], kValue);
        call_helper(helpers::throw_object);
      } else {
        call_helper(helpers::throw_again);
      }
      m_.stop();
      break;
    case Do::kTry: try_statement(s); break;
    case Do::kBlock: block(s.body); break;
  }
}

}  // namespace lilt
