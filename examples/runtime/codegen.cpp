// Frames, calls and what is said of them.
#include "codegen.h"

#include <algorithm>

namespace lilt {

using namespace windlass::managed;
namespace prologue = windlass::prologue;

// ---- the frame ----------------------------------------------------------------------------------------------------

Generator::Generator(Runtime& runtime, Cell& cell, int tier, const Sizes& sizes, asmjit::CodeHolder& code)
    : runtime_(runtime), cell_(cell), function_(*cell.function), tier_(tier), sizes_(sizes), code_(code), m_(code) {
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
  if (Machine::words_of_frame(frame_slots_, registers_.size()) % 2 != 0) ++frame_slots_;  // sp is a multiple of 16
}

// Funclets find locals in slots only.
void Generator::choose_registers() {
  if (tier_ == 0 || function_.has_try) return;
  std::vector<int> order(function_.locals.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::ranges::stable_sort(order, std::greater{}, [&](int i) { return function_.uses[static_cast<std::size_t>(i)]; });
  for (std::size_t i = 0; i < std::min(order.size(), std::size(kPreserved)); ++i)
    registers_.emplace(order[i], kPreserved[i]);
}

const Preserved* Generator::register_of(int local) const {
  const auto found = registers_.find(local);
  return found == registers_.end() ? nullptr : &found->second;
}

std::vector<Preserved> Generator::saved() const {
  std::vector<Preserved> all;
  if (in_funclet()) return {kBase, kThread};
  for (const auto& [local, reg] : registers_) all.push_back(reg);
  return all;
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
  const At depth{kThread.reg, offsetof(Thread, depth)};
  m_.load(kOther, {kThread.reg, offsetof(Thread, shadow)});
  m_.load(kValue, depth);
  m_.store(in_funclet() ? At{kStack, 0} : slot(depth_slot()), kValue);
  m_.shift_left(4);
  m_.add();
  m_.load(kOther, static_cast<Word>(current_) << 32 | (reinterpret_cast<Word>(&cell_) & 0xffff'ffff));
  m_.store({kValue, 0}, kOther);
  m_.address_of(kOther, {kStack, Machine::words_of_frame(words(), saved().size()) * 8});
  m_.store({kValue, 8}, kOther);
  m_.increment(depth);
}

void Generator::pop_shadow() {
  if (!runtime_.options.check_stacks) return;
  m_.load(kOther, in_funclet() ? At{kStack, 0} : slot(depth_slot()));
  m_.store({kThread.reg, offsetof(Thread, depth)}, kOther);
}

void Generator::prologue_of_method() {
  Part& p = part();
  m_.enter(words(), saved(), p.prologue);
  for (int i = 0; i < reference_locals_; ++i) m_.clear(slot(i));
  for (const auto& [local, reg] : registers_) m_.load(reg.reg, 0);
  if (function_.has_try) m_.store(slot(thread_slot()), kThread.reg);
  std::size_t next = 0;
  if (function_.is_lambda) m_.store(slot(environment_), kArguments[next++]);
  for (std::size_t i = 0; i < function_.parameters.size(); ++i, ++next) {
    if (const Preserved* reg = register_of(static_cast<int>(i)))
      m_.move(reg->reg, kArguments[next]);
    else
      m_.store(slot(slot_of_local(static_cast<int>(i))), kArguments[next]);
  }
  push_shadow();
  p.body = m_.here();
  if (runtime_.options.gc_stress) call_helper(helpers::collect);
  if ((tier_ == 0 && runtime_.options.tier_up != 0) || runtime_.options.again != 0) {
    const Label stays = m_.label();
    m_.load(kArguments[1], reinterpret_cast<Word>(&cell_));
    m_.count_down({kArguments[1], offsetof(Cell, calls_left)}, stays);
    call_helper(helpers::tier_up);
    m_.bind(stays);
  }
}

void Generator::prologue_of_funclet() {
  Part& p = part();
  m_.enter(words(), saved(), p.prologue);
  m_.move(kBase.reg, kArguments[0]);
  m_.load(kThread.reg, slot(thread_slot()));
  push_shadow();
  p.body = m_.here();
}

void Generator::epilogue() {
  Part& p = part();
  pop_shadow();
  p.epilogue = m_.here();
  m_.leave(words(), saved(), p.at, p.prologue);
  p.end = m_.here();
  p.prologue.architecture = windlass::kOwnArchitecture;
  p.prologue.code_size = p.end - p.at;
}

// ---- calls --------------------------------------------------------------------------------------------------------

// Behind a call: which temporaries are live there. Locals always are.
void Generator::site() {
  RootSite made{.offset = m_.here() - part().at};
  for (int i = 0; i < live_references_; ++i) {
    const int at = (first_reference_temp_ + i) * 8;
    made.live.push_back({.place = in_funclet() ? at_register(kBase.dwarf, at) : at_sp(at)});
  }
  part().map.sites.push_back(std::move(made));
}

// On the way out of a try without an exception.
void Generator::call_finally(const Region& region) {
  m_.move(kArguments[0], in_funclet() ? kBase.reg : kStack);
  m_.load(kArguments[1], 0);
  m_.call(region.finally_code);
  site();
}

// Where a check goes that failed. Inside of the same try, so that its clauses count.
Label Generator::trap(helpers::Trap which) {
  auto& label = traps_.back()[which];
  if (!label) label = m_.label();
  return *label;
}

void Generator::end_traps() {
  for (Word which = 0; which < helpers::kTraps; ++which) {
    const auto& label = traps_.back()[which];
    if (!label) continue;
    m_.bind(*label);
    m_.load(kArguments[1], which);
    call_helper(helpers::trap);
    m_.stop();
  }
  traps_.pop_back();
}

// ---- the whole ----------------------------------------------------------------------------------------------------

int Generator::new_part(Funclet kind) {
  Part& made = parts_.emplace_back();
  made.funclet = kind;
  made.begin = m_.label();
  made.name = function_.name;
  const char* const suffix[] = {"", "$filter", "$catch", "$finally", "$fault"};
  made.name += suffix[static_cast<std::size_t>(kind)];
  return static_cast<int>(parts_.size()) - 1;
}

void Generator::run() {
  current_ = new_part(Funclet::kNone);
  epilogue_ = m_.label();
  m_.bind(part().begin);
  begin_traps();
  prologue_of_method();
  for (const auto& each : function_.body) statement(*each);
  m_.load(kValue, 0);
  m_.jump(epilogue_);
  end_traps();
  m_.bind(epilogue_);
  epilogue();
  while (!pending_.empty()) {
    const Pending next = pending_.front();
    pending_.pop_front();
    m_.align(64);
    funclet(next);
  }
}

namespace {

// Where Windows unwind information begins.
std::size_t info_at(const asmjit::CodeHolder& code) { return (code.codeSize() + 7) / 8 * 8; }

}  // namespace

std::size_t Generator::size() const {
  std::size_t all = info_at(code_);
  for (const Part& each : parts_)
    if (runtime_.options.windows_unwind) all += (windows_information(each.prologue, 0, 0).bytes.size() + 3) / 4 * 4;
  return all;
}

// RVAs count from the code's begin.
void Generator::describe_to_windows(const Part& from, Piece& to, Word address, Word& info) const {
  WindowsInformation made = windows_information(from.prologue, from.at, static_cast<std::uint32_t>(info - address));
  std::ranges::copy(made.bytes, reinterpret_cast<std::byte*>(info));
  info += (made.bytes.size() + 3) / 4 * 4;
  to.entries = std::move(made.entries);
  to.method.windows = {address, made.function, to.entries};
}

std::unique_ptr<Code> Generator::finish(Word address) {
  auto made = std::make_unique<Code>();
  made->begin = address;
  made->size = size();
  Word info = address + info_at(code_);
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
        from.map.always.push_back({.place = in_register(reg.dwarf)});
    auto roots = encode(from.map);
    if (!roots) throw std::runtime_error(function_.name + ": " + roots.error().text());
    to.roots = std::move(*roots);
    to.method.roots = to.roots;
    auto rows = prologue::rows_of(from.prologue);
    if (!rows) throw std::runtime_error(function_.name + ": " + rows.error().text());
    to.rows = std::move(*rows);
    if (runtime_.options.windows_unwind) describe_to_windows(from, to, address, info);
    for (ClauseAt& clause : from.clauses) {
      clause.clause.handler = address + code_.labelOffset(clause.handler);
      if (clause.clause.kind == ClauseKind::kFilter) clause.clause.filter = address + code_.labelOffset(clause.filter);
      to.clauses.push_back(clause.clause);
    }
    to.method.clauses = to.clauses;
  }
  return made;
}

namespace {

// A frame or a function that is larger than instructions have room for.
struct NotEncodable : asmjit::ErrorHandler {
  explicit NotEncodable(const std::string& its_function) : function(its_function) {}
  void handleError(asmjit::Error, const char* message, asmjit::BaseEmitter*) override {
    throw std::runtime_error(function + ": " + message);
  }
  const std::string& function;
};

}  // namespace

std::unique_ptr<Code> generate(Runtime& runtime, Cell& cell, int tier, Place place, void* user) {
  NotEncodable errors(cell.function->name);
  Generator::Sizes sizes;
  {
    asmjit::CodeHolder code;
    code.init(asmjit::Environment::host());
    code.setErrorHandler(&errors);
    Generator first(runtime, cell, tier, {}, code);
    first.run();
    sizes = first.needed();
  }
  asmjit::CodeHolder code;
  code.init(asmjit::Environment::host());
  code.setErrorHandler(&errors);
  Generator generator(runtime, cell, tier, sizes, code);
  generator.run();
  code.flatten();
  code.resolveUnresolvedLinks();
  const Word address = place(user, generator.size());
  code.relocateToBase(address);
  code.copyFlattenedData(reinterpret_cast<void*>(address), code.codeSize());
  __builtin___clear_cache(reinterpret_cast<char*>(address), reinterpret_cast<char*>(address) + code.codeSize());
  return generator.finish(address);
}

}  // namespace lilt
