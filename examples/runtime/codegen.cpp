// Frames, calls and what is said of them.
#include "codegen.h"

#include <algorithm>

namespace lilt {

using namespace windlass::managed;
namespace prologue = windlass::prologue;

namespace {

// That calls preserve, by x86-64's and DWARF's numbers. r15 is the thread's.
struct Preserved {
  x86::Gp reg;
  windlass::RegisterNumber dwarf;
};
const Preserved kPreserved[] = {{x86::rbx, 3}, {x86::rbp, 6}, {x86::r12, 12}, {x86::r13, 13}, {x86::r14, 14}};
windlass::RegisterNumber dwarf_of(const x86::Gp& reg) {
  return std::ranges::find_if(kPreserved, [&](const Preserved& p) { return p.reg == reg; })->dwarf;
}

}  // namespace

// ---- the frame ----------------------------------------------------------------------------------------------------

Generator::Generator(Runtime& runtime, Cell& cell, int tier, const Sizes& sizes, asmjit::CodeHolder& code)
    : runtime_(runtime), cell_(cell), function_(*cell.function), tier_(tier), sizes_(sizes), code_(code), a_(&code) {
  choose_registers();
  int next = 1;  // behind what is returned
  if (function_.is_lambda) environment_ = next++;
  slots_.resize(function_.locals.size());
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (function_.locals[i]->is_reference()) slots_[i] = next++;
  reference_locals_ = next;
  first_reference_temp_ = next;
  first_word_ = next + sizes.reference_temps;
  next = first_word_ + 3;
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (!function_.locals[i]->is_reference()) slots_[i] = next++;
  first_temp_ = next;
  frame_slots_ = next + sizes.temps;
  // Behind the return address and what is pushed, rsp is aligned to 16.
  if ((frame_slots_ + registers_.size() + 1) % 2 != 0) ++frame_slots_;
}

// Funclets find locals in slots only.
void Generator::choose_registers() {
  if (tier_ == 0 || function_.has_try) return;
  std::vector<int> order(function_.locals.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::ranges::stable_sort(order, std::greater{}, [&](int i) { return function_.uses[static_cast<std::size_t>(i)]; });
  for (std::size_t i = 0; i < std::min(order.size(), std::size(kPreserved)); ++i)
    registers_.emplace(order[i], kPreserved[i].reg);
}

std::optional<x86::Gp> Generator::register_of(int local) const {
  const auto found = registers_.find(local);
  return found == registers_.end() ? std::nullopt : std::optional(found->second);
}

int Generator::push_temp(bool reference) {
  int& live = reference ? live_references_ : live_;
  int& most = reference ? needed_.reference_temps : needed_.temps;
  most = std::max(most, live + 1);
  return (reference ? first_reference_temp_ : first_temp_) + live++;
}

// The shadow stack of --check-stacks: an entry is there before it counts.
void Generator::push_shadow() {
  if (!runtime_.options.check_stacks) return;
  // From rsp to the CFA: what is allocated, what is pushed, the return address.
  const int frame = in_funclet() ? 6 : frame_slots_ + static_cast<int>(registers_.size()) + 1;
  a_.mov(x86::rax, x86::qword_ptr(x86::r15, offsetof(Thread, depth)));
  a_.mov(in_funclet() ? x86::qword_ptr(x86::rsp, 0) : slot(depth_slot()), x86::rax);
  a_.shl(x86::rax, 4);
  a_.add(x86::rax, x86::qword_ptr(x86::r15, offsetof(Thread, shadow)));
  load(x86::rcx, static_cast<Word>(current_) << 32 | (reinterpret_cast<Word>(&cell_) & 0xffff'ffff));
  a_.mov(x86::qword_ptr(x86::rax, 0), x86::rcx);
  a_.lea(x86::rcx, x86::qword_ptr(x86::rsp, frame * 8));
  a_.mov(x86::qword_ptr(x86::rax, 8), x86::rcx);
  a_.inc(x86::qword_ptr(x86::r15, offsetof(Thread, depth)));
}

void Generator::pop_shadow() {
  if (!runtime_.options.check_stacks) return;
  a_.mov(x86::rcx, in_funclet() ? x86::qword_ptr(x86::rsp, 0) : slot(depth_slot()));
  a_.mov(x86::qword_ptr(x86::r15, offsetof(Thread, depth)), x86::rcx);
}

void Generator::prologue_of_method() {
  Part& p = part();
  for (const auto& [local, reg] : registers_) {
    a_.push(reg);
    p.prologue.ops.push_back({here(), prologue::push(dwarf_of(reg))});
  }
  a_.long_().sub(x86::rsp, frame_slots_ * 8);
  p.prologue.ops.push_back({here(), prologue::Allocate{static_cast<std::uint64_t>(frame_slots_) * 8}});
  a_.xor_(x86::eax, x86::eax);
  for (int i = 0; i < reference_locals_; ++i) a_.mov(slot(i), x86::rax);
  for (const auto& [local, reg] : registers_) a_.xor_(reg.r32(), reg.r32());
  if (function_.has_try) a_.mov(slot(thread_slot()), x86::r15);
  std::size_t next = 0;
  if (function_.is_lambda) a_.mov(slot(environment_), kArguments[next++]);
  for (std::size_t i = 0; i < function_.parameters.size(); ++i, ++next) {
    if (const auto reg = register_of(static_cast<int>(i)))
      a_.mov(*reg, kArguments[next]);
    else
      a_.mov(slot(slot_of_local(static_cast<int>(i))), kArguments[next]);
  }
  push_shadow();
  p.body = here();
  if (runtime_.options.gc_stress) call_helper(helpers::collect);
  if ((tier_ == 0 && runtime_.options.tier_up != 0) || runtime_.options.again != 0) {
    const asmjit::Label stays = a_.newLabel();
    load(x86::rsi, reinterpret_cast<Word>(&cell_));
    a_.lock().dec(x86::dword_ptr(x86::rsi, offsetof(Cell, calls_left)));
    a_.jnz(stays);
    call_helper(helpers::tier_up);
    a_.bind(stays);
  }
}

void Generator::prologue_of_funclet() {
  Part& p = part();
  const std::uint32_t begin = here();
  a_.push(x86::rbx);
  p.prologue.ops.push_back({here() - begin, prologue::push(3)});
  a_.push(x86::r15);
  p.prologue.ops.push_back({here() - begin, prologue::push(15)});
  a_.sub(x86::rsp, 24);
  p.prologue.ops.push_back({here() - begin, prologue::Allocate{24}});
  a_.mov(x86::rbx, x86::rdi);
  a_.mov(x86::r15, slot(thread_slot()));
  push_shadow();
  p.body = here();
}

void Generator::epilogue() {
  Part& p = part();
  pop_shadow();
  p.epilogue = here();
  prologue::Epilogue made{.begin = here() - p.at};
  const auto undo = [&](prologue::Action action) { made.undone.push_back({here() - p.at, action}); };
  const auto& ops = p.prologue.ops;
  a_.add(x86::rsp, in_funclet() ? 24 : frame_slots_ * 8);
  undo(ops.back().action);
  for (std::size_t i = ops.size() - 1; i-- > 0;) {
    const auto& save = std::get<prologue::Save>(ops[i].action);
    a_.pop(save.reg == 15 ? x86::r15 : std::ranges::find(kPreserved, save.reg, &Preserved::dwarf)->reg);
    undo(save);
  }
  a_.ret();
  made.end = here() - p.at;
  p.prologue.epilogues = {made};
  p.end = here();
}

// ---- calls --------------------------------------------------------------------------------------------------------

// Behind a call: which temporaries are live there. Locals always are.
void Generator::site() {
  RootSite made{.offset = here() - part().at};
  for (int i = 0; i < live_references_; ++i) {
    const int at = (first_reference_temp_ + i) * 8;
    made.live.push_back({.place = in_funclet() ? at_register(3, at) : at_sp(at)});
  }
  part().map.sites.push_back(std::move(made));
}

// On the way out of a try without an exception.
void Generator::call_finally(const Region& region) {
  a_.mov(x86::rdi, in_funclet() ? x86::rbx : x86::rsp);
  a_.xor_(x86::esi, x86::esi);
  a_.call(region.finally_code);
  site();
}

// Where a check goes that failed. Inside of the same try, so that its clauses count.
asmjit::Label Generator::trap(helpers::Trap which) {
  auto& label = traps_.back()[which];
  if (!label) label = a_.newLabel();
  return *label;
}

void Generator::end_traps() {
  for (Word which = 0; which < helpers::kTraps; ++which) {
    const auto& label = traps_.back()[which];
    if (!label) continue;
    a_.bind(*label);
    load(x86::rsi, which);
    call_helper(helpers::trap);
    a_.int3();
  }
  traps_.pop_back();
}

// ---- the whole ----------------------------------------------------------------------------------------------------

int Generator::new_part(Funclet kind) {
  Part& made = parts_.emplace_back();
  made.funclet = kind;
  made.begin = a_.newLabel();
  made.name = function_.name;
  const char* const suffix[] = {"", "$filter", "$catch", "$finally", "$fault"};
  made.name += suffix[static_cast<std::size_t>(kind)];
  return static_cast<int>(parts_.size()) - 1;
}

void Generator::run() {
  current_ = new_part(Funclet::kNone);
  epilogue_ = a_.newLabel();
  a_.bind(part().begin);
  begin_traps();
  prologue_of_method();
  for (const auto& each : function_.body) statement(*each);
  a_.xor_(x86::eax, x86::eax);
  a_.jmp(epilogue_);
  end_traps();
  a_.bind(epilogue_);
  epilogue();
  while (!pending_.empty()) {
    const Pending next = pending_.front();
    pending_.pop_front();
    a_.align(asmjit::AlignMode::kCode, 64);
    funclet(next);
  }
}

std::unique_ptr<Code> Generator::finish(Word address) {
  auto made = std::make_unique<Code>();
  made->begin = address;
  made->size = code_.codeSize();
  for (Part& from : parts_) {
    Piece& to = made->pieces.emplace_back();
    to.name = from.name;
    to.method.begin = address + from.at;
    to.method.end = address + from.end;
    to.method.funclet = from.funclet;
    if (from.funclet != Funclet::kNone) to.method.parent = &made->pieces.front().method;
    to.body_begin = address + from.body;
    to.body_end = address + from.epilogue;
    to.returns_reference = from.funclet == Funclet::kNone && function_.result->is_reference();
    to.method.id = static_cast<Word>(made->pieces.size() - 1) << 32 | (reinterpret_cast<Word>(&cell_) & 0xffff'ffff);
    from.map.code_size = from.end - from.at;
    if (from.funclet == Funclet::kNone)
      for (int i = 0; i < reference_locals_; ++i) from.map.always.push_back({.place = at_sp(i * 8)});
    for (const auto& [local, reg] : registers_)
      if (function_.locals[static_cast<std::size_t>(local)]->is_reference())
        from.map.always.push_back({.place = in_register(dwarf_of(reg))});
    auto roots = encode(from.map);
    if (!roots) throw std::runtime_error(function_.name + ": " + roots.error().text());
    to.roots = std::move(*roots);
    to.method.roots = to.roots;
    from.prologue.code_size = from.end - from.at;
    auto rows = prologue::rows_of(from.prologue);
    if (!rows) throw std::runtime_error(function_.name + ": " + rows.error().text());
    to.rows = std::move(*rows);
    for (ClauseAt& clause : from.clauses) {
      clause.clause.handler = address + code_.labelOffset(clause.handler);
      if (clause.clause.kind == ClauseKind::kFilter) clause.clause.filter = address + code_.labelOffset(clause.filter);
      to.clauses.push_back(clause.clause);
    }
    to.method.clauses = to.clauses;
  }
  return made;
}

std::unique_ptr<Code> generate(Runtime& runtime, Cell& cell, int tier, Place place, void* user) {
  Generator::Sizes sizes;
  {
    asmjit::CodeHolder code;
    code.init(asmjit::Environment::host());
    Generator first(runtime, cell, tier, {}, code);
    first.run();
    sizes = first.needed();
  }
  asmjit::CodeHolder code;
  code.init(asmjit::Environment::host());
  Generator generator(runtime, cell, tier, sizes, code);
  generator.run();
  code.flatten();
  code.resolveUnresolvedLinks();
  const Word address = place(user, code.codeSize());
  code.relocateToBase(address);
  code.copyFlattenedData(reinterpret_cast<void*>(address), code.codeSize());
  return generator.finish(address);
}

}  // namespace lilt
