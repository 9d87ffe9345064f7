#include <array>
#include <stdexcept>
#include <utility>

#include "machine.h"

namespace lilt {

namespace prologue = windlass::prologue;
using namespace target;

namespace {

Mem word(const At& at) { return ptr(at.base, at.offset); }
constexpr windlass::RegisterNumber kLink = 30;
// For what no instruction has room for.
const Gp scratch = x17;

}  // namespace

WindowsInformation windows_information(const windlass::Prologue& described, std::uint32_t function,
                                       std::uint32_t info) {
  auto written = windlass::winarm64::write(described, {.function = function, .info = info});
  if (!written) throw std::runtime_error(written.error().text());
  return {std::move(written->bytes), {}, std::move(written->entries)};
}

void Machine::stop() { a_.brk(1); }

// ---- frames -------------------------------------------------------------------------------------------------------

namespace {

// x30 and the saved registers are at the top of the frame, in a first piece that sp moves by: what is stored right
// behind that every format of unwind information can say, however large the rest is.
int top_size(std::size_t saved) { return static_cast<int>((saved + 2) / 2 * 16); }
int link_at(std::size_t saved) { return top_size(saved) - 8; }
int saved_at(std::size_t saved, std::size_t i) { return link_at(saved) - 8 - 8 * static_cast<int>(i); }
// So much of the rest an instruction moves sp by: multiples of 4096, and what is left.
std::array<int, 2> rest(int words, std::size_t saved) {
  const int size = Machine::words_of_frame(words, saved) * 8 - top_size(saved);
  return {size / 4096 * 4096, size % 4096};
}

}  // namespace

void Machine::enter(int words, const std::vector<Preserved>& saved, windlass::Prologue& described) {
  const std::uint32_t begin = here();
  const auto did = [&](prologue::Action action) { described.ops.push_back({here() - begin, action}); };
  const auto move_sp = [&](int size) {
    if (size == 0) return;
    a_.sub(sp, sp, size);
    did(prologue::Allocate{static_cast<std::uint64_t>(size)});
  };
  const auto save = [&](const Gp& reg, windlass::RegisterNumber number, int at) {
    a_.str(reg, ptr(sp, at));
    did(prologue::Save{number, static_cast<std::uint32_t>(at)});
  };
  move_sp(top_size(saved.size()));
  save(x30, kLink, link_at(saved.size()));
  for (std::size_t i = 0; i < saved.size(); ++i) save(saved[i].reg, saved[i].dwarf, saved_at(saved.size(), i));
  for (const int size : rest(words, saved.size())) move_sp(size);
}

void Machine::leave(int words, const std::vector<Preserved>& saved, std::uint32_t begin,
                    windlass::Prologue& described) {
  prologue::Epilogue made{.begin = here() - begin};
  std::size_t left = described.ops.size();
  const auto undone = [&] { made.undone.push_back({here() - begin, described.ops[--left].action}); };
  const auto move_sp = [&](int size) {
    if (size == 0) return;
    a_.add(sp, sp, size);
    undone();
  };
  const auto [large, small] = rest(words, saved.size());
  move_sp(small);
  move_sp(large);
  for (std::size_t i = saved.size(); i-- > 0;) {
    a_.ldr(saved[i].reg, ptr(sp, saved_at(saved.size(), i)));
    undone();
  }
  a_.ldr(x30, ptr(sp, link_at(saved.size())));
  undone();
  move_sp(top_size(saved.size()));
  a_.ret(x30);
  made.end = here() - begin;
  described.epilogues = {made};
}

// ---- words --------------------------------------------------------------------------------------------------------

void Machine::load(const Reg& to, std::uint64_t constant) { a_.mov(to, asmjit::imm(constant)); }
void Machine::load(const Reg& to, const At& from) { a_.ldr(to, word(from)); }
void Machine::store(const At& to, const Reg& from) { a_.str(from, word(to)); }
void Machine::clear(const At& at) { a_.str(xzr, word(at)); }
void Machine::move(const Reg& to, const Reg& from) { a_.mov(to, from); }

void Machine::address_of(const Reg& to, const At& at) {
  if (at.offset < 4096) return static_cast<void>(a_.add(to, at.base, at.offset));
  a_.add(to, at.base, at.offset / 4096 * 4096);
  a_.add(to, to, at.offset % 4096);
}

void Machine::address_of(const Reg& to, const Label& code) { a_.adr(to, code); }

void Machine::increment(const At& at) {
  a_.ldr(scratch, word(at));
  a_.add(scratch, scratch, 1);
  a_.str(scratch, word(at));
}

void Machine::load_element(const Reg& to) {
  a_.add(scratch, kValue, 16);
  a_.ldr(to, ptr(scratch, kOther, lsl(3)));
}

void Machine::store_element(const Reg& from) {
  a_.add(scratch, kValue, 16);
  a_.str(from, ptr(scratch, kOther, lsl(3)));
}

// ---- operations ---------------------------------------------------------------------------------------------------

void Machine::add() { a_.add(kValue, kValue, kOther); }
void Machine::subtract() { a_.sub(kValue, kValue, kOther); }
void Machine::multiply() { a_.mul(kValue, kValue, kOther); }
// The least integer by -1 is itself, and nothing is left.
void Machine::divide() { a_.sdiv(kValue, kValue, kOther); }

void Machine::remainder() {
  a_.sdiv(scratch, kValue, kOther);
  a_.msub(kValue, scratch, kOther, kValue);
}

void Machine::negate() { a_.neg(kValue, kValue); }
void Machine::invert() { a_.eor(kValue, kValue, 1); }
void Machine::shift_left(unsigned count) { a_.lsl(kValue, kValue, count); }
void Machine::negate_real() { a_.eor(kValue, kValue, asmjit::imm(std::uint64_t{1} << 63)); }

void Machine::compute_real(char sign) {
  a_.fmov(d0, kValue);
  a_.fmov(d1, kOther);
  switch (sign) {
    case '+': a_.fadd(d0, d0, d1); break;
    case '-': a_.fsub(d0, d0, d1); break;
    case '*': a_.fmul(d0, d0, d1); break;
    default: a_.fdiv(d0, d0, d1); break;
  }
  a_.fmov(kValue, d0);
}

void Machine::square_root() {
  a_.fmov(d0, kValue);
  a_.fsqrt(d0, d0);
  a_.fmov(kValue, d0);
}

void Machine::to_real() {
  a_.scvtf(d0, kValue);
  a_.fmov(kValue, d0);
}

void Machine::to_integer() {
  a_.fmov(d0, kValue);
  a_.fcvtzs(kValue, d0);
}

void Machine::compare(Condition condition) {
  constexpr CondCode kCodes[] = {CondCode::kLT, CondCode::kLE, CondCode::kGT,
                                 CondCode::kGE, CondCode::kEQ, CondCode::kNE};
  a_.cmp(kValue, kOther);
  a_.cset(kValue, kCodes[static_cast<unsigned>(condition)]);
}

// "Minus" and "lower or same" are no where a NaN is compared, as "greater" and "equal" are; "not equal" is yes.
void Machine::compare_real(Condition condition) {
  constexpr CondCode kCodes[] = {CondCode::kMI, CondCode::kLS, CondCode::kGT,
                                 CondCode::kGE, CondCode::kEQ, CondCode::kNE};
  a_.fmov(d0, kValue);
  a_.fmov(d1, kOther);
  a_.fcmp(d0, d1);
  a_.cset(kValue, kCodes[static_cast<unsigned>(condition)]);
}

// ---- jumps --------------------------------------------------------------------------------------------------------

void Machine::jump(const Label& to) { a_.b(to); }
void Machine::jump_if_zero(const Reg& value, const Label& to) { a_.cbz(value, to); }
void Machine::jump_unless_zero(const Reg& value, const Label& to) { a_.cbnz(value, to); }

void Machine::jump_unless_below(const Reg& value, const At& limit, const Label& to) {
  a_.ldr(scratch, word(limit));
  a_.cmp(value, scratch);
  a_.b_hs(to);
}

void Machine::jump_if_above(const Reg& value, std::uint32_t limit, const Label& to) {
  a_.mov(scratch, limit);
  a_.cmp(value, scratch);
  a_.b_hi(to);
}

void Machine::jump_unless_equal(const At& at, const Reg& value, const Label& to) {
  a_.ldr(scratch, word(at));
  a_.cmp(scratch, value);
  a_.b_ne(to);
}

void Machine::jump_if_clear(const void* flag, const Label& to) {
  load(scratch, reinterpret_cast<std::uint64_t>(flag));
  a_.ldr(scratch.w(), ptr(scratch));
  a_.cbz(scratch.w(), to);
}

void Machine::count_down(const At& counter, const Label& to) {
  const Label again = label();
  address_of(scratch, counter);
  a_.bind(again);
  a_.ldaxr(kOther.w(), ptr(scratch));
  a_.sub(kOther.w(), kOther.w(), 1);
  a_.stlxr(kThird.w(), kOther.w(), ptr(scratch));
  a_.cbnz(kThird.w(), again);
  a_.cbnz(kOther.w(), to);
}

// ---- calls --------------------------------------------------------------------------------------------------------

void Machine::call(const Label& to) { a_.bl(to); }

void Machine::call(const At& to) {
  a_.ldr(kTarget, word(to));
  a_.blr(kTarget);
}

void Machine::call(const void* to) {
  load(kTarget, reinterpret_cast<std::uint64_t>(to));
  a_.blr(kTarget);
}

}  // namespace lilt
