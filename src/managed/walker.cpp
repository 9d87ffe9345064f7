// The iterator: which frame comes after which.
#include <new>

#include "managed/install.h"
#include "managed/walk_state.h"

namespace windlass::managed {

std::string_view state_name(CrawlState state) {
  switch (state) {
    case CrawlState::kUninitialized: return "uninitialized";
    case CrawlState::kFrameless: return "frameless";
    case CrawlState::kFrameFunction: return "frame function";
    case CrawlState::kSkippedFrame: return "skipped frame";
    case CrawlState::kNoFrameTransition: return "no-frame transition";
    case CrawlState::kNativeMarker: return "native marker";
    case CrawlState::kInitialNativeContext: return "initial native context";
    case CrawlState::kNativeFrame: return "native frame";
    case CrawlState::kDone: return "done";
  }
  return "?";
}

std::uint64_t new_generation() { return walk::Module::next_id(); }

std::uint64_t CrawlFrame::function() const {
  if (method != nullptr) return method->root().id;
  const bool explicit_frame = state == CrawlState::kFrameFunction || state == CrawlState::kSkippedFrame;
  return explicit_frame && frame.stands_for_function() ? frame.user : 0;
}

Expected<std::uint64_t> CrawlFrame::value(const Memory& memory, const FramePlace& place) const {
  std::uint64_t base = 0;
  switch (place.base) {
    case FramePlace::kNowhere: return fail(ErrorCode::kNotFound, "frame has no such value", pc().value());
    case FramePlace::kAtCfa: base = cfa; break;
    case FramePlace::kAtSp: base = registers.sp(); break;
    case FramePlace::kInRegister:
    case FramePlace::kAtRegister:
      if (!registers.has(place.reg))
        return fail(ErrorCode::kNotFound, "register is not known in this frame", pc().value(), place.reg);
      base = registers.get(place.reg);
      if (place.base == FramePlace::kInRegister) return base;
      break;
  }
  const std::uint64_t address = base + static_cast<std::uint64_t>(std::int64_t{place.offset});
  std::uint64_t value = 0;
  if (!memory.read(address, &value, sizeof value))
    return fail(ErrorCode::kUnreadable, "stack is not readable", address, sizeof value);
  return value;
}

// ---- the state machine --------------------------------------------------------------------------------------------

using State = ManagedWalker::State;

ManagedWalker::State::State(const ManagedThread& its_thread, const Registers& registers, WalkFlags its_flags)
    : thread(its_thread),
      flags(its_flags),
      next_frame(its_thread.own_list != nullptr ? its_thread.own_list->top : its_thread.frames),
      cookie(its_thread.own_list != nullptr ? its_thread.own_list->cookie : its_thread.cookie),
      next_record(its_thread.exceptions),
      scratch(walk::take_scratch()) {
  frame.registers = registers;
  generation = its_thread.runtime->generation();
}

Ended State::failed(const Error& why) {
  error = why;
  return done();
}

Ended State::done() {
  next = Next::kDone;
  describe(CrawlState::kDone);
  return {};
}

// What is shown next, where the walk stands.
inline void State::describe(CrawlState as) {
  frame.state = as;
  frame.method = nullptr;
  frame.exception = 0;
  frame.cfa = 0;
  frame.first = frame.interrupted = frame.faulted = false;
  frame.reports_roots = frame.saved_known = true;
}

// Where the walk goes on: in a method, or in native code.
inline void State::enter() {
  caller_found = outermost = false;
  kept = nullptr;
  const std::uint64_t pc = frame.registers.pc().lookup();
  const bool same = method != nullptr && pc - method->begin < method->end - method->begin;
  if (!same) method = frame.registers.known_slots() != 0 ? thread.runtime->find(pc) : nullptr;
  next = method != nullptr ? Next::kMethod : Next::kNative;
}

void State::enter(const Place& place) {
  frame.registers = place.registers;
  if (wants_places()) frame.saved = place.saved;
  enter();
}

// A method's frames are what a walk is made of: leaving one and showing the next is one loop, without a call.
inline bool State::advance() {
  for (;;) {
    Turn turn = Turn::kEnd;
    switch (next) {
      case Next::kStart: turn = start(); break;
      case Next::kMethod: turn = show_method(); break;
      case Next::kCaller: turn = leave_method(); break;
      case Next::kNative: turn = show_native(); break;
      case Next::kFunction: turn = leave_native_frame(); break;
      case Next::kFrame: turn = leave_frame(); break;
      case Next::kRecord: turn = leave_record(); break;
      case Next::kDone: break;
    }
    if (turn != Turn::kGoOn) return turn == Turn::kShow;
  }
}

Turn State::start() {
  if (thread.space->is_own_process())
    if (const auto landing = landing_of(frame.registers)) frame.registers = *landing;
  see_through_hijack(thread, frame.registers, frame.saved);
  const CodeAddress pc = frame.registers.pc();
  enter();
  if (method != nullptr && !pc.is_return_address() && !has(kAllowAsyncWalk) && !has(kThreadIsSuspended))
    return failed({ErrorCode::kUnsupported,
                   "thread stands at an instruction, and is neither suspended nor may be walked asynchronously",
                   pc.value()});
  if (method != nullptr || !has(kNotifyOnInitialNativeContext) || frame.registers.known_slots() == 0)
    return Turn::kGoOn;
  describe(CrawlState::kInitialNativeContext);
  return Turn::kShow;
}

// ---- methods ------------------------------------------------------------------------------------------------------

// Unwinds one frame ahead: what lies in the method's frame is only known then.
inline bool State::find_caller() {
  if (caller_found) return true;
  if (walk_is_logged()) log_unwind("about to unwind", *method);
  caller_found = true;
  if (generation != 0) kept = scratch->rows.find(generation, frame.registers.pc());
  return (kept != nullptr && !kept->ends_stack()) || unwind();
}

// Without a kept row.
bool State::unwind() {
  kept = nullptr;
  const auto found = unwind_method(thread, *method, frame, scratch->rows, generation, caller);
  if (!found) return failed(found.error());
  outermost = !*found;
  return true;
}

// sp behind the call of the method, by what find_caller() found.
inline std::uint64_t State::caller_sp() const {
  if (outermost) return ~std::uint64_t{0};
  if (kept == nullptr) return caller.registers.sp();
  return walk::cfa_of(*kept, frame.registers);
}

inline bool State::guard_holds() const {
  if (has(kSkipCookieCheck) || method->guard.base == FramePlace::kNowhere || frame.interrupted) return true;
  const auto guard = frame.value(thread.space->memory(), method->guard);
  return guard && *guard == thread.runtime->guard_value();
}

// `this` of a frame, where its body runs and the register that has it is known.
inline bool State::object_is_one() const {
  if (has(kAllowInvalidObjects) || method->this_object.base == FramePlace::kNowhere || frame.interrupted) return true;
  const auto object = frame.value(thread.space->memory(), method->this_object);
  return !object || *object == 0 || thread.runtime->is_object(*object);
}

// Exceptions that are dispatched in the frame's callees: the walk began above them.
bool State::pass_records(std::uint64_t cfa) {
  for (ExceptionRecord record; next_record < cfa; next_record = record.previous)
    if (!read_record(next_record, record)) return false;
  return true;
}

inline Turn State::show_method() {
  if (!find_caller()) return Turn::kEnd;
  const std::uint64_t cfa = caller_sp(), sp = frame.registers.sp(), pc = frame.registers.pc().value();
  // Before its first instruction a function of AArch64 has taken nothing of the stack.
  if (cfa < sp || (cfa == sp && frame.registers.pc().is_return_address()) || sp < lowest)
    return failed({ErrorCode::kMalformed, "stack does not move", pc, cfa});
  if (!outermost && next_frame < cfa) {
    if (!read_next_frame()) return Turn::kEnd;
    return show_frame(CrawlState::kSkippedFrame);
  }
  if (!outermost && next_record < cfa && !pass_records(cfa)) return Turn::kEnd;
  describe(CrawlState::kFrameless);
  frame.method = method;
  frame.saved_known = wants_places();
  frame.cfa = cfa;
  frame.first = first;
  frame.interrupted = !frame.registers.pc().is_return_address();
  frame.faulted = faulted;
  frame.reports_roots = !has(kGcFuncletReferences) || reported != cfa;
  if (!guard_holds()) return failed({ErrorCode::kMalformed, "frame's guard was overwritten", pc, cfa});
  if (!object_is_one()) return failed({ErrorCode::kMalformed, "a frame's object is none", pc, cfa});
  first = faulted = false;
  next = Next::kCaller;
  return Turn::kShow;
}

// To the caller: in place where a kept row says how.
inline bool State::go_to_caller() {
  if (!find_caller()) return false;
  if (kept != nullptr) {
    SavedLocations& saved = wants_places() ? frame.saved : caller.saved;
    if (walk::apply_in_place(*kept, *thread.space, frame.registers, saved)) {
      see_through_hijack(thread, frame.registers, saved);
      return true;
    }
    if (!unwind()) return false;
  }
  if (outermost) {
    frame.registers.forget_all();  // what is left of the list of frames is shown
    return true;
  }
  frame.registers = caller.registers;
  if (wants_places()) frame.saved = caller.saved;
  return true;
}

inline Turn State::leave_method() {
  const bool from_funclet = method->funclet != Funclet::kNone;
  if (!go_to_caller()) return Turn::kEnd;
  if (walk_is_logged()) log_unwind("finished unwind", *method);
  if (from_funclet && has(kSkipFunclets)) skipping = true;
  if (frame.registers.has_sp()) lowest = frame.registers.sp();
  if (has(kQuickUnwind)) {
    const Architecture architecture = frame.registers.architecture();
    frame.registers.keep_slots(std::uint64_t{1} << Registers::sp_number(architecture) |
                               std::uint64_t{1} << Registers::pc_number(architecture) |
                               std::uint64_t{1} << Registers::fp_number(architecture));
  }
  enter();
  from_managed = true;
  if (method != nullptr || !has(kNotifyOnUnmanagedToManaged)) return Turn::kGoOn;
  describe(CrawlState::kNativeMarker);
  return Turn::kShow;
}

// ---- native code --------------------------------------------------------------------------------------------------

// The innermost of what is left of the thread's list, if it has not been read.
bool State::read_next_frame() {
  if (view || next_frame == kEndOfFrames) return true;
  const auto read = thread.runtime->read(thread.space->memory(), next_frame, has(kSkipCookieCheck) ? nullptr : &cookie);
  if (!read) return failed(read.error());
  view = *read;
  return true;
}

bool State::read_record(std::uint64_t address, ExceptionRecord& to) {
  if (!thread.space->memory().read(address, &to, sizeof to))
    return failed({ErrorCode::kUnreadable, "exception record is not readable", address, sizeof to});
  if (!has(kSkipCookieCheck) && (to.cookie ^ address) != cookie)
    return failed({ErrorCode::kMalformed, "exception record's cookie is wrong", address, to.cookie});
  if (to.previous <= address)
    return failed({ErrorCode::kMalformed, "exception record's previous one lies below it", address, to.previous});
  return true;
}

// Does an explicit frame say that native code called the managed code behind it, or that this is the thread's first?
bool may_follow_native(const std::optional<FrameView>& view) {
  return !view || view->form == FrameForm::kMarker || view->kind >= FrameKind::kUser;
}

Turn State::show_native() {
  if (!read_next_frame()) return Turn::kEnd;
  const bool by_record = next_record != kEndOfFrames && next_record < next_frame;
  const bool known = frame.registers.known_slots() != 0;
  if (has(kNativeFrames) && known) return show_native_frame();
  if (from_managed && !by_record && !has(kDisableMissingFrameDetection) && !may_follow_native(view))
    return failed({ErrorCode::kMalformed, "native code called managed code without an explicit frame",
                   frame.registers.pc().value(), view->address});
  from_managed = false;
  if (by_record) return show_record();
  return view ? show_frame(CrawlState::kFrameFunction) : done();
}

// Where the native frames so far, or callees before them, have saved what the one at hand still has.
SavedLocations State::saved_past_native() const {
  SavedLocations saved = native->frame().saved;
  const Registers& registers = native->frame().registers;
  registers.for_each([&](RegisterNumber reg, std::uint64_t) {
    if (saved.at(registers, reg) == 0 && reg != Registers::pc_number(registers.architecture()))
      saved.set(registers, reg, frame.saved.at(registers, reg));
  });
  return saved;
}

// Steps by call frame information, unless an exception record or an explicit frame lies in the present frame. The
// record's frame replaces the callers of the dispatcher. The explicit frame comes before the native one.
Turn State::show_native_frame() {
  if (!native) native.emplace(*thread.space, frame.registers);
  if (caller_found) {
    const std::uint64_t sp = native->frame().sp();
    if (next_record < sp && next_record < next_frame) return show_record();
    if (next_frame < sp) return show_frame(CrawlState::kFrameFunction);
    Place place{.registers = native->frame().registers, .saved = saved_past_native()};
    const bool was_hijacked = see_through_hijack(thread, place.registers, place.saved);
    enter(place);
    if (method != nullptr) {
      native.reset();
      return Turn::kGoOn;
    }
    if (was_hijacked) native->restart(frame.registers);
  } else {
    native->restart(frame.registers);
  }
  describe(CrawlState::kNativeFrame);
  frame.first = first;
  first = false;
  next = Next::kFunction;
  return Turn::kShow;
}

Turn State::leave_native_frame() {
  next = Next::kNative;
  if (native->step()) {
    caller_found = true;
    return show_native();
  }
  const WalkEnd end = native->end_reason();
  const Error why = native->error();
  native.reset();
  frame.registers.forget_all();
  caller_found = false;
  if (next_frame != kEndOfFrames || next_record != kEndOfFrames) return show_native();
  return end == WalkEnd::kComplete ? done() : failed(why);
}

// ---- explicit frames and exception records ------------------------------------------------------------------------

Turn State::show_frame(CrawlState as) {
  describe(as);
  frame.frame = *view;
  next = Next::kFrame;
  return Turn::kShow;
}

void State::passed(const FrameView& passed_view) {
  next_frame = passed_view.next;
  view.reset();
  if (has(kPopFrames) && thread.own_list != nullptr) thread.own_list->top = next_frame;
}

Turn State::leave_frame() {
  const FrameView left = *view;
  passed(left);
  if (frame.state == CrawlState::kSkippedFrame) {
    next = Next::kMethod;
    return Turn::kGoOn;
  }
  next = Next::kNative;
  // The stack itself leads on, but from where a hijacked method has returned to: nobody has called that.
  if (has(kNativeFrames) && frame.registers.known_slots() != 0 && left.kind != FrameKind::kHijacked)
    return show_native();
  if (!left.has_registers()) {
    frame.registers.forget_all();
    return show_native();
  }
  Place place;
  if (const auto found = unwind_frame(thread, left, place); !found) return failed(found.error());
  faulted = (left.attributes & kFaulted) != 0;
  lowest = place.registers.sp();
  native.reset();
  enter(place);
  return go_on_above(left.address, "explicit frame leads to below itself");
}

// The frame to which an explicit frame or a record leads lies around it or above it. A walk that finds a broken one
// ends.
Turn State::go_on_above(std::uint64_t address, const char* otherwise) {
  if (method == nullptr) return Turn::kGoOn;
  if (!find_caller()) return Turn::kEnd;
  if (caller_sp() > address) return Turn::kGoOn;
  return failed({ErrorCode::kMalformed, otherwise, address, caller_sp()});
}

Turn State::show_record() {
  describe(CrawlState::kNoFrameTransition);
  frame.exception = next_record;
  next = Next::kRecord;
  return Turn::kShow;
}

Turn State::leave_record() {
  ExceptionRecord record;
  const std::uint64_t address = next_record;
  if (!read_record(address, record)) return Turn::kEnd;
  if (skipping && skip_to == 0) skip_to = record.establisher;
  if (static_cast<Funclet>(record.funclet) != Funclet::kFilter) reported = record.establisher;
  next_record = record.previous;
  native.reset();
  // Registers that a collector changes there are those that the dispatcher goes on with.
  Place place{.registers = record.context().registers(thread.space->architecture()), .saved = {}};
  save_in(address + offsetof(ExceptionRecord, contexts) + (record.current & 1) * sizeof(SavedContext), place);
  // Frames between were unwound, and explicit frames in them with them.
  for (lowest = place.registers.sp(); next_frame < lowest;) {
    if (!read_next_frame()) return Turn::kEnd;
    passed(*view);
  }
  enter(place);
  return go_on_above(address, "exception record leads to below itself");
}

// ---- what is shown ------------------------------------------------------------------------------------------------

void State::log_unwind(std::string_view tag, const Method& of) const {
  char name[128] = {};
  log_walk(thread.id, number, "{} for method={} PC={:016x} SP={:016x}", tag, thread.runtime->name(of, name),
           frame.registers.pc().value(), frame.registers.sp());
}

void State::log(std::string_view tag) const {
  char name[128] = {};
  const std::uint64_t pc = frame.registers.pc().value(), sp = frame.registers.sp();
  switch (frame.state) {
    case CrawlState::kFrameless:
      log_walk(thread.id, number, "{}: FRAMELESS: PC={:016x} SP={:016x} method={}", tag, pc, sp,
               thread.runtime->name(*frame.method, name));
      break;
    case CrawlState::kFrameFunction:
    case CrawlState::kSkippedFrame:
      log_walk(thread.id, number, "{}: EXPLICIT : PC={:016x} SP={:016x} Frame={:016x} type={}", tag, pc, sp,
               frame.frame.address, kind_name(frame.frame.kind));
      break;
    default: log_walk(thread.id, number, "{}: {}: PC={:016x} SP={:016x}", tag, state_name(frame.state), pc, sp);
  }
}

inline bool State::is_shown() {
  if (skipping) {
    // A record that was passed has said where the frame is; in the meantime everything belongs to the funclet.
    if (frame.state == CrawlState::kFrameless && skip_to != 0 && frame.cfa == skip_to) {
      skipping = false;
      skip_to = 0;
    } else {
      return false;
    }
  }
  switch (frame.state) {
    case CrawlState::kFrameless:
      if (frame.method->funclet == Funclet::kNone || !has(kSkipFunclets)) return true;
      return false;
    case CrawlState::kFrameFunction: return !has(kFunctionsOnly) || frame.frame.stands_for_function();
    case CrawlState::kSkippedFrame:
      return has(kHandleSkippedFrames) && (!has(kFunctionsOnly) || frame.frame.stands_for_function());
    case CrawlState::kNoFrameTransition: return has(kNotifyOnNoFrameTransitions);
    case CrawlState::kNativeMarker: return has(kNotifyOnUnmanagedToManaged);
    case CrawlState::kInitialNativeContext: return has(kNotifyOnInitialNativeContext);
    case CrawlState::kNativeFrame: return !has(kFunctionsOnly);
    default: return false;
  }
}

// ---- the walker ---------------------------------------------------------------------------------------------------

ManagedWalker::ManagedWalker(const ManagedThread& thread, const Registers& registers, WalkFlags flags) {
  static_assert(sizeof(State) <= kStateSize && alignof(State) <= 16);
  new (storage_) State(thread, registers, flags);
}

ManagedWalker::~ManagedWalker() { state().~State(); }

const CrawlFrame& ManagedWalker::frame() const { return state().frame; }
const std::optional<Error>& ManagedWalker::error() const { return state().error; }

bool ManagedWalker::next() {
  State& state = this->state();
  while (state.advance()) {
    const bool logged = walk_is_logged();
    if (logged) state.log("CONSIDER");
    const bool shown = state.is_shown();
    if (logged) state.log(shown ? "CALLBACK" : "FILTER  ");
    ++state.number;
    if (shown) return true;
  }
  return false;
}

void ManagedWalker::refresh(const Registers& registers) {
  State& state = this->state();
  state.frame.registers = registers;
  state.caller_found = false;
  state.kept = nullptr;
}

}  // namespace windlass::managed
