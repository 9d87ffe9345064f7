// Statements. What a try leaves to do after an exception is in funclets; on the way out without one its finally is
// called as any function.
#include "codegen.h"

namespace lilt {

using namespace windlass::managed;

void Generator::store_local(int local) {
  if (const auto reg = register_of(local))
    a_.mov(*reg, x86::rax);
  else
    a_.mov(slot(slot_of_local(local)), x86::rax);
}

void Generator::assign(const Statement& s) {
  const Expression& to = *s.to;
  if (to.op == Op::kName) return value(*s.value), store_local(to.index);
  const bool field = to.op == Op::kField;
  value(*to.kids[0]);
  const int object = push_temp(true);
  a_.mov(slot(object), x86::rax);
  int index = 0;
  if (!field) {
    value(*to.kids[1]);
    index = push_temp(false);
    a_.mov(slot(index), x86::rax);
  }
  value(*s.value);
  a_.mov(x86::rdx, x86::rax);
  a_.mov(x86::rax, slot(object));
  if (field) {
    a_.test(x86::rax, x86::rax);
    a_.jz(trap(helpers::kNull));
    a_.mov(x86::qword_ptr(x86::rax, 8 + 8 * to.index), x86::rdx);
  } else {
    a_.mov(x86::rcx, slot(index));
    element_at();
    a_.mov(x86::qword_ptr(x86::rax, x86::rcx, 3, 16), x86::rdx);
    pop_temp(false);
  }
  pop_temp(true);
}

void Generator::if_statement(const Statement& s) {
  const asmjit::Label other = a_.newLabel(), end = a_.newLabel();
  value(*s.value);
  a_.test(x86::rax, x86::rax);
  a_.jz(other);
  block(s.body);
  a_.jmp(end);
  a_.bind(other);
  block(s.other);
  a_.bind(end);
}

// A loop asks at each turn whether threads are to stop: a method that calls nothing does not return either.
void Generator::while_statement(const Statement& s) {
  const asmjit::Label again = a_.newLabel(), end = a_.newLabel(), go_on = a_.newLabel();
  a_.bind(again);
  value(*s.value);
  a_.test(x86::rax, x86::rax);
  a_.jz(end);
  block(s.body);
  load(x86::rax, reinterpret_cast<Word>(runtime_.suspender.pending()));
  a_.cmp(x86::dword_ptr(x86::rax), 0);
  a_.jz(go_on);
  call_helper(helpers::poll);
  a_.bind(go_on);
  a_.jmp(again);
  a_.bind(end);
}

// ---- try ----------------------------------------------------------------------------------------------------------

// With what is to be returned in its slot: the finallys around, then out of the method, or of the funclet with the
// address at which its method goes on to return.
void Generator::leave() {
  for (std::size_t i = regions_.size(); i-- > 0;)
    if (regions_[i].piece == current_ && regions_[i].has_finally) call_finally(regions_[i]);
  if (in_funclet())
    a_.lea(x86::rax, x86::ptr(part().returns));
  else
    a_.mov(x86::rax, slot(return_slot()));
  a_.jmp(epilogue_);
}

void Generator::return_statement(const Statement& s) {
  if (s.value) value(*s.value);
  bool cleanups = in_funclet();
  for (const Region& region : regions_) cleanups |= region.piece == current_ && region.has_finally;
  if (!cleanups) return static_cast<void>(a_.jmp(epilogue_));
  if (s.value) a_.mov(slot(return_slot()), x86::rax);
  leave();
}

void Generator::try_body(const Statement& s, const asmjit::Label& normal, const asmjit::Label& returns) {
  ClauseAt clause;
  clause.clause.begin = here() - part().at;
  begin_traps();
  block(s.body);
  const asmjit::Label over = a_.newLabel();
  a_.jmp(over);
  end_traps();
  clause.clause.end = here() - part().at;
  for (const Catch& each : s.catches) {
    clause.handler = a_.newLabel();
    clause.clause.kind = each.when ? ClauseKind::kFilter : ClauseKind::kCatch;
    clause.clause.user = reinterpret_cast<Word>(&runtime_.info(each.type));
    if (each.when) clause.filter = a_.newLabel();
    part().clauses.push_back(clause);
    const int catching = new_part(Funclet::kCatch);
    parts_[static_cast<std::size_t>(catching)].begin = clause.handler;
    pending_.push_back({catching, &s, &each, normal, returns});
    if (!each.when) continue;
    const int filter = new_part(Funclet::kFilter);
    parts_[static_cast<std::size_t>(filter)].begin = clause.filter;
    pending_.push_back({filter, &s, &each, {}, {}});
  }
  a_.nop();  // so that the finally, which cleans up after the catches, protects more than they do
  a_.bind(over);
  if (!s.has_finally) return;
  clause.clause.end = here() - part().at;
  clause.clause.kind = ClauseKind::kFinally;
  clause.handler = regions_.back().finally_code;
  part().clauses.push_back(clause);
}

void Generator::try_statement(const Statement& s) {
  Region region{.finally_code = a_.newLabel(), .has_finally = s.has_finally, .piece = current_};
  const asmjit::Label normal = a_.newLabel(), returns = a_.newLabel(), skip = a_.newLabel();
  if (s.has_finally) {
    const int part = new_part(Funclet::kFinally);
    parts_[static_cast<std::size_t>(part)].begin = region.finally_code;
    pending_.push_back({part, &s, nullptr, {}, {}});
  }
  regions_.push_back(region);
  try_body(s, normal, returns);
  a_.jmp(skip);
  // Where catches go on: what the exception left on the shadow stack is no more.
  const auto landing = [&](const asmjit::Label& label) {
    a_.bind(label);
    if (!runtime_.options.check_stacks) return;
    pop_shadow();
    a_.inc(x86::qword_ptr(x86::r15, offsetof(Thread, depth)));
  };
  landing(returns);
  leave();
  landing(normal);
  a_.bind(skip);
  regions_.pop_back();
  if (s.has_finally) call_finally(region);
}

void Generator::funclet(const Pending& pending) {
  current_ = pending.piece;
  part().at = here();
  part().returns = pending.returns;
  epilogue_ = a_.newLabel();
  a_.bind(part().begin);
  prologue_of_funclet();
  begin_traps();
  if (pending.clause != nullptr) {
    if (part().funclet == Funclet::kFilter) {
      load(x86::rcx, reinterpret_cast<Word>(&runtime_.info(pending.clause->type)));
      a_.xor_(x86::eax, x86::eax);
      a_.cmp(x86::qword_ptr(x86::rsi), x86::rcx);
      a_.jne(epilogue_);
    }
    a_.mov(slot(slot_of_local(pending.clause->local)), x86::rsi);
    if (part().funclet == Funclet::kFilter)
      value(*pending.clause->when);
    else
      block(pending.clause->body);
  } else {
    block(pending.statement->other);
  }
  if (part().funclet == Funclet::kCatch) a_.lea(x86::rax, x86::ptr(pending.normal));
  a_.jmp(epilogue_);
  end_traps();
  a_.bind(epilogue_);
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
        a_.test(x86::rax, x86::rax);
        a_.jz(trap(helpers::kNull));
        a_.mov(x86::rsi, x86::rax);
        call_helper(helpers::throw_object);
      } else {
        call_helper(helpers::throw_again);
      }
      a_.int3();
      break;
    case Do::kTry: try_statement(s); break;
    case Do::kBlock: block(s.body); break;
  }
}

}  // namespace lilt
