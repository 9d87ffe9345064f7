#include <stdexcept>
#include <utility>

#include "machine.h"

namespace lilt {

namespace prologue = windlass::prologue;
using namespace target;

namespace {

Mem word(const At& at) { return qword_ptr(at.base, at.offset); }
Mem element() { return qword_ptr(kValue, kOther, 3, 16); }

}  // namespace

WindowsInformation windows_information(const windlass::Prologue& described, std::uint32_t function,
                                       std::uint32_t info) {
  auto written = windlass::winx64::write(described, {.function = function, .info = info});
  if (!written) throw std::runtime_error(written.error().text());
  return {std::move(written->bytes), written->entries.at(0), {}};
}

void Machine::stop() { a_.int3(); }

// ---- frames -------------------------------------------------------------------------------------------------------

void Machine::enter(int words, const std::vector<Preserved>& saved, windlass::Prologue& described) {
  const std::uint32_t begin = here();
  for (const Preserved& each : saved) {
    a_.push(each.reg);
    described.ops.push_back({here() - begin, prologue::push(each.dwarf)});
  }
  a_.long_().sub(rsp, words * 8);
  described.ops.push_back({here() - begin, prologue::Allocate{static_cast<std::uint64_t>(words) * 8}});
}

void Machine::leave(int words, const std::vector<Preserved>& saved, std::uint32_t begin,
                    windlass::Prologue& described) {
  prologue::Epilogue made{.begin = here() - begin};
  std::size_t left = described.ops.size();
  const auto undone = [&] { made.undone.push_back({here() - begin, described.ops[--left].action}); };
  a_.add(rsp, words * 8);
  undone();
  for (auto each = saved.rbegin(); each != saved.rend(); ++each) {
    a_.pop(each->reg);
    undone();
  }
  a_.ret();
  made.end = here() - begin;
  described.epilogues = {made};
}

// ---- words --------------------------------------------------------------------------------------------------------

void Machine::load(const Reg& to, std::uint64_t constant) {
  constant == 0 ? a_.xor_(to.r32(), to.r32()) : a_.mov(to, asmjit::imm(constant));
}
void Machine::load(const Reg& to, const At& from) { a_.mov(to, word(from)); }
void Machine::store(const At& to, const Reg& from) { a_.mov(word(to), from); }
void Machine::clear(const At& at) { a_.mov(word(at), 0); }
void Machine::move(const Reg& to, const Reg& from) { a_.mov(to, from); }
void Machine::address_of(const Reg& to, const At& at) { a_.lea(to, word(at)); }
void Machine::address_of(const Reg& to, const Label& code) { a_.lea(to, ptr(code)); }
void Machine::increment(const At& at) { a_.inc(word(at)); }
void Machine::load_element(const Reg& to) { a_.mov(to, element()); }
void Machine::store_element(const Reg& from) { a_.mov(element(), from); }

// ---- operations ---------------------------------------------------------------------------------------------------

void Machine::add() { a_.add(kValue, kOther); }
void Machine::subtract() { a_.sub(kValue, kOther); }
void Machine::multiply() { a_.imul(kValue, kOther); }

// The least integer by -1 is a fault of the processor: by negation it is itself.
void Machine::divide() {
  const Label divides = label(), done = label();
  a_.cmp(kOther, -1);
  a_.jne(divides);
  a_.neg(kValue);
  a_.jmp(done);
  a_.bind(divides);
  a_.cqo();
  a_.idiv(kOther);
  a_.bind(done);
}

void Machine::remainder() {
  const Label divides = label(), done = label();
  a_.cmp(kOther, -1);
  a_.jne(divides);
  a_.xor_(eax, eax);
  a_.jmp(done);
  a_.bind(divides);
  a_.cqo();
  a_.idiv(kOther);
  a_.mov(kValue, rdx);
  a_.bind(done);
}

void Machine::negate() { a_.neg(kValue); }
void Machine::invert() { a_.xor_(kValue, 1); }
void Machine::shift_left(unsigned count) { a_.shl(kValue, count); }
void Machine::negate_real() { a_.btc(kValue, 63); }

void Machine::compute_real(char sign) {
  a_.movq(xmm0, kValue);
  a_.movq(xmm1, kOther);
  switch (sign) {
    case '+': a_.addsd(xmm0, xmm1); break;
    case '-': a_.subsd(xmm0, xmm1); break;
    case '*': a_.mulsd(xmm0, xmm1); break;
    default: a_.divsd(xmm0, xmm1); break;
  }
  a_.movq(kValue, xmm0);
}

void Machine::square_root() {
  a_.movq(xmm0, kValue);
  a_.sqrtsd(xmm0, xmm0);
  a_.movq(kValue, xmm0);
}

void Machine::to_real() {
  a_.cvtsi2sd(xmm0, kValue);
  a_.movq(kValue, xmm0);
}

void Machine::to_integer() {
  a_.movq(xmm0, kValue);
  a_.cvttsd2si(kValue, xmm0);
}

void Machine::compare(Condition condition) {
  a_.cmp(kValue, kOther);
  switch (condition) {
    case Condition::kLess: a_.setl(al); break;
    case Condition::kLessEqual: a_.setle(al); break;
    case Condition::kGreater: a_.setg(al); break;
    case Condition::kGreaterEqual: a_.setge(al); break;
    case Condition::kEqual: a_.sete(al); break;
    case Condition::kNotEqual: a_.setne(al); break;
  }
  a_.movzx(eax, al);
}

// Swapped for < and <=, so that a NaN is neither; == is ordered, != is not.
void Machine::compare_real(Condition condition) {
  const bool swapped = condition == Condition::kLess || condition == Condition::kLessEqual;
  a_.movq(swapped ? xmm1 : xmm0, kValue);
  a_.movq(swapped ? xmm0 : xmm1, kOther);
  a_.ucomisd(xmm0, xmm1);
  switch (condition) {
    case Condition::kLess:
    case Condition::kGreater: a_.seta(al); break;
    case Condition::kLessEqual:
    case Condition::kGreaterEqual: a_.setae(al); break;
    case Condition::kEqual: a_.sete(al), a_.setnp(cl), a_.and_(al, cl); break;
    case Condition::kNotEqual: a_.setne(al), a_.setp(cl), a_.or_(al, cl); break;
  }
  a_.movzx(eax, al);
}

// ---- jumps --------------------------------------------------------------------------------------------------------

void Machine::jump(const Label& to) { a_.jmp(to); }

void Machine::jump_if_zero(const Reg& value, const Label& to) {
  a_.test(value, value);
  a_.jz(to);
}

void Machine::jump_unless_zero(const Reg& value, const Label& to) {
  a_.test(value, value);
  a_.jnz(to);
}

void Machine::jump_unless_below(const Reg& value, const At& limit, const Label& to) {
  a_.cmp(value, word(limit));
  a_.jae(to);
}

void Machine::jump_if_above(const Reg& value, std::uint32_t limit, const Label& to) {
  a_.cmp(value, limit);
  a_.ja(to);
}

void Machine::jump_unless_equal(const At& at, const Reg& value, const Label& to) {
  a_.cmp(word(at), value);
  a_.jne(to);
}

void Machine::jump_if_clear(const void* flag, const Label& to) {
  load(kValue, reinterpret_cast<std::uint64_t>(flag));
  a_.cmp(dword_ptr(kValue), 0);
  a_.jz(to);
}

void Machine::count_down(const At& counter, const Label& to) {
  a_.lock().dec(dword_ptr(counter.base, counter.offset));
  a_.jnz(to);
}

// ---- calls --------------------------------------------------------------------------------------------------------

void Machine::call(const Label& to) { a_.call(to); }
void Machine::call(const At& to) { a_.call(word(to)); }
void Machine::call(const void* to) {
  load(kTarget, reinterpret_cast<std::uint64_t>(to));
  a_.call(kTarget);
}

}  // namespace lilt
