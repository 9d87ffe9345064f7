// The two passes. Sources: "x64 exception handling" (Microsoft); ECMA-335, I.12.4.2.5 (Overview of exception handling)
// and I.12.4.2.8.2 (what an exception in a filter does).
#include "managed/dispatch.h"

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "managed/install.h"
#include "managed/walk_state.h"

namespace windlass::managed {
namespace {

bool covers(const Clause& clause, const CrawlFrame& frame) {
  const std::uint64_t offset = frame.pc().lookup() - frame.method->begin;
  return offset >= clause.begin && offset < clause.end;
}

bool cleans_up(const Clause& clause) {
  return clause.kind == ClauseKind::kFinally || clause.kind == ClauseKind::kFault;
}

Funclet funclet_of(const Clause& clause) {
  switch (clause.kind) {
    case ClauseKind::kFinally: return Funclet::kFinally;
    case ClauseKind::kFault: return Funclet::kFault;
    default: return Funclet::kCatch;
  }
}

}  // namespace

Dispatch::Dispatch(ThrowingThread& thread, const Thrown& thrown, const Registers& thrower)
    : thread_(thread), older_(innermost(thread)), thrown_(thrown), frames_(thread.walk.own_list->top) {
  record_.previous = thread.walk.exceptions;
  record_.cookie = thread.walk.own_list->cookie ^ reinterpret_cast<std::uint64_t>(&record_);
  record_.object = thrown.object;
  record_.pass = 1;
  record_.set_context(thrower);
  std::atomic_signal_fence(std::memory_order_release);
  thread.walk.exceptions = reinterpret_cast<std::uint64_t>(&record_);
  thread.dispatch = this;
}

void print_failure(const Error& why) {
  std::fprintf(stderr, "windlass: a managed exception cannot go on: %s\n", why.text().c_str());
}

void Dispatch::run() {
  if (!search()) {
    if (walker_->error()) give_up(*walker_->error());
    unhandled();
  }
  if (cannot_unwind_) give_up(*cannot_unwind_);
  unwind();
}

void Dispatch::give_up(const Error& why) {
  thread_.personality->failed(why, thrown_);
  std::abort();
}

void Dispatch::unhandled() {
  walker_.reset();
  thread_.personality->notify_debugger(thrown_);
  thread_.personality->unhandled(thrown_);
  std::abort();
}

Dispatch* Dispatch::of(const ThrowingThread& thread, std::uint64_t record) {
  for (Dispatch* dispatch = innermost(thread); dispatch != nullptr; dispatch = dispatch->older_)
    if (reinterpret_cast<std::uint64_t>(&dispatch->record_) == record) return dispatch;
  return nullptr;
}

Dispatch* Dispatch::catching(const ThrowingThread& thread) {
  Dispatch* dispatch = innermost(thread);
  while (dispatch != nullptr && dispatch->record_.funclet != static_cast<std::uint32_t>(Funclet::kCatch))
    dispatch = dispatch->older_;
  return dispatch;
}

// ---- clauses ------------------------------------------------------------------------------------------------------

// The walk leaves a funclet. In the frame to which the funclet belongs, its clause and the inner clauses are done.
void Dispatch::note_record(const CrawlFrame& transition) {
  const Dispatch* dispatch = of(thread_, transition.exception);
  if (dispatch == nullptr) return;
  thrown_in_ = dispatch->record_.establisher;
  thrown_in_clause_ = dispatch->clause_;
}

// From which on the frame's clauses count: behind the one that runs, those of the same `try`, and those inside of it.
std::size_t Dispatch::first_clause(const CrawlFrame& frame) const {
  if (frame.cfa != thrown_in_ || thrown_in_ == 0) return 0;
  const auto& clauses = frame.method->clauses;
  const Clause& running = clauses[thrown_in_clause_];
  std::size_t next = thrown_in_clause_ + 1;
  while (next < clauses.size() && (clauses[next].begin > running.begin || clauses[next].end < running.end ||
                                   (clauses[next].begin == running.begin && clauses[next].end == running.end)))
    ++next;
  return next;
}

std::uint64_t Dispatch::call(const CrawlFrame& frame, std::size_t clause, Funclet funclet, std::uint64_t code) {
  record_.establisher = frame.cfa;
  record_.funclet = static_cast<std::uint32_t>(funclet);
  clause_ = clause;
  const std::uint64_t result = windlass_call_funclet(code, thread_.personality->base(frame), record_.object, back_);
  record_.funclet = 0;
  record_.establisher = 0;
  thrown_.object = record_.object;  // a collector may have moved it
  return result;
}

// ---- first pass ---------------------------------------------------------------------------------------------------

bool Dispatch::search_frame(const CrawlFrame& frame) {
  const auto& clauses = frame.method->clauses;
  for (std::size_t i = first_clause(frame); i < clauses.size(); ++i) {
    const Clause& clause = clauses[i];
    if (!covers(clause, frame) || cleans_up(clause)) continue;
    target_ = {.cfa = frame.cfa, .clause = i};
    if (clause.kind == ClauseKind::kCatch
            ? thread_.personality->catches(frame, clause, thrown_)
            : clause.filter == Clause::kAlways || call(frame, i, Funclet::kFilter, clause.filter) != 0)
      return true;
  }
  return false;
}

bool Dispatch::goes_through(const CrawlFrame& marker) {
  switch (thread_.personality->at_native(marker, thrown_)) {
    case NativePolicy::kStop: return false;
    case NativePolicy::kUnwind: check_native(marker); return true;
    case NativePolicy::kFailFast: break;
  }
  give_up({ErrorCode::kUnsupported, "it would leave managed code that native code has called (kFailFast)",
           marker.registers.pc().value()});
}

bool Dispatch::search() {
  const Registers thrower = record_.context().registers(thread_.walk.space->architecture());
  walker_.emplace(thread_.walk, thrower,
                  kLightUnwind | kAllowAsyncWalk | kAllowInvalidObjects | kNotifyOnNoFrameTransitions);
  while (walker_->next()) {
    const CrawlFrame& frame = walker_->frame();
    switch (frame.state) {
      case CrawlState::kFrameless:
        thread_.personality->trace(frame, thrown_);
        if (search_frame(frame)) return true;
        break;
      case CrawlState::kNoFrameTransition:
        note_record(frame);
        // An exception that a filter throws is dropped: the filter's answer is no.
        if (Dispatch* its = of(thread_, frame.exception);
            its != nullptr && its->record_.funclet == static_cast<std::uint32_t>(Funclet::kFilter)) {
          target_ = {.filter = its};
          return true;
        }
        break;
      case CrawlState::kFrameFunction:
        if (frame.frame.kind == FrameKind::kCallback && frame.registers.known_slots() != 0 && !goes_through(frame))
          return false;
        break;
      default: break;
    }
  }
  return false;
}

// ---- second pass --------------------------------------------------------------------------------------------------

void Dispatch::unwind() {
  record_.pass = 2;
  thrown_in_ = 0;
  const Registers thrower = record_.context().registers(thread_.walk.space->architecture());
  walker_.emplace(thread_.walk, thrower, kAllowAsyncWalk | kAllowInvalidObjects | kNotifyOnNoFrameTransitions);
  while (walker_->next()) {
    const CrawlFrame& frame = walker_->frame();
    switch (frame.state) {
      case CrawlState::kFrameless: {
        clean_up(frame);
        if (target_.filter == nullptr && frame.cfa == target_.cfa) finish(frame);
        break;
      }
      case CrawlState::kNoFrameTransition:
        if (target_.filter != nullptr && of(thread_, frame.exception) == target_.filter) finish_filter(*target_.filter);
        note_record(frame);
        supersede(frame.exception);
        break;
      case CrawlState::kFrameFunction:
        if (frame.frame.kind == FrameKind::kCallback && frame.registers.known_slots() != 0) leave_through_native(frame);
        break;
      default: break;
    }
  }
  give_up(
      walker_->error().value_or(Error{ErrorCode::kMalformed, "the stack is not what the first pass saw",
                                      record_.context().registers(thread_.walk.space->architecture()).pc().value()}));
}

// Everything of the frame that has to run, up to the clause that handles it.
void Dispatch::clean_up(const CrawlFrame& frame) {
  const auto& clauses = frame.method->clauses;
  const bool last = target_.filter == nullptr && frame.cfa == target_.cfa;
  const std::size_t end = last ? target_.clause : clauses.size();
  for (std::size_t i = first_clause(frame); i < end; ++i) {
    const Clause& clause = clauses[i];
    if (!covers(clause, frame) || !cleans_up(clause)) continue;
    record_.set_context(frame.registers);
    (void)call(frame, i, funclet_of(clause), clause.handler);
    walker_->refresh(record_.context().registers(thread_.walk.space->architecture()));
  }
}

// The thread's list as it was, without what lies below an address.
std::uint64_t Dispatch::frames_above(std::uint64_t address) const {
  std::uint64_t frame = frames_;
  while (frame < address) frame = reinterpret_cast<const ExplicitFrame*>(frame)->next;
  return frame;
}

void Dispatch::finish(const CrawlFrame& seen) {
  const CrawlFrame frame = seen;
  record_.set_context(frame.registers);
  const Clause& clause = frame.method->clauses[target_.clause];
  const std::uint64_t target =
      clause.handler != 0 ? call(frame, target_.clause, Funclet::kCatch, clause.handler) : clause.resume;
  Registers registers = record_.context().registers(thread_.walk.space->architecture());
  walker_.reset();
  registers.set_slot(0, record_.object);  // rax, x0
  registers.set_pc(CodeAddress::instruction(target));
  record_.set_context(registers);
  land(registers, record_.previous, older_, frames_above(registers.sp()));
}

void Dispatch::land(const Registers& registers, std::uint64_t record, Dispatch* dispatch, std::uint64_t frames) {
  ManagedThread& walk = thread_.walk;
  Hijack& hijack = walk.hijack;
  if (hijack.slot != 0 && hijack.slot < registers.sp()) hijack.slot = 0;  // it was unwound
  Landing landing{
      .stores = {{&walk.exceptions, record},
                 {reinterpret_cast<std::uint64_t*>(&thread_.dispatch), reinterpret_cast<std::uint64_t>(dispatch)},
                 {&walk.own_list->top, frames}}};
  for (unsigned slot = 0; slot < Registers::kSlots; ++slot) landing.slots[slot] = registers.get_slot(slot);
  windlass_install(&landing);
}

void Dispatch::finish_filter(Dispatch& dispatch) {
  walker_.reset();
  Registers back(thread_.walk.space->architecture());
  for (unsigned slot = 0; slot < Registers::kSlots; ++slot) back.set_slot(slot, dispatch.back_[slot]);
  back.set_slot(0, 0);  // the filter's answer
  land(back, reinterpret_cast<std::uint64_t>(&dispatch.record_), &dispatch, dispatch.frames_);
}

// An exception whose handler or cleanup threw this one is over: the frames that its dispatch stands on are being
// unwound.
void Dispatch::supersede(std::uint64_t record) {
  Dispatch* its = of(thread_, record);
  if (its == nullptr || its == this) return;
  its->walker_.reset();
  record_.previous = its->record_.previous;
  older_ = its->older_;
}

// ---- throwing -----------------------------------------------------------------------------------------------------

namespace {

[[noreturn, gnu::noinline]] void raise_from(ThrowingThread& thread, const Thrown& thrown, const Registers& here) {
  refuse_shadow_stack("throwing a managed exception");
  const auto thrower = managed_caller(thread.walk, here);
  Dispatch(thread, thrown, thrower ? thrower->registers : Registers(thread.walk.space->architecture())).run();
}

}  // namespace

void raise(ThrowingThread& thread, std::uint64_t object) {
  raise_from(thread, {.object = object}, capture_registers());
}

void rethrow(ThrowingThread& thread) {
  const Dispatch* caught = Dispatch::catching(thread);
  raise_from(thread, {.object = caught != nullptr ? caught->object() : 0, .rethrown = true}, capture_registers());
}

}  // namespace windlass::managed
