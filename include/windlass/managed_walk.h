// Stacks that mix managed code, a runtime's helpers and native code: what a collector, exceptions, suspension, a
// debugger and a profiler walk. Managed frames come from the runtime's own unwind information, from Windows unwind
// information or from rows; native code between them is passed by explicit frames (explicit_frame.h), or, if asked
// for, walked by its call frame information. After CoreCLR's StackFrameIterator, whose states and flags these are.
//
//   for (const CrawlFrame& frame : ManagedWalker(thread, registers, kFunctionsOnly)) use(frame);
//   walk(thread, registers, kFunctionsOnly, [&](const CrawlFrame& frame) { ...; return WalkAction::kContinue; });
//
// A walk neither allocates nor locks if the runtime's answers do not, and is signal-safe then; any number of threads
// may walk at a time, one a walker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "windlass/bytes.h"
#include "windlass/explicit_frame.h"
#include "windlass/function_ref.h"
#include "windlass/walk.h"
#include "windlass/winarm64.h"
#include "windlass/winx64.h"

namespace windlass::managed {

// ---- what a runtime tells -----------------------------------------------------------------------------------------

// A part of a method that was compiled as a function of its own, called by who dispatches exceptions.
enum class Funclet : std::uint8_t { kNone, kFilter, kCatch, kFinally, kFault };

// Where a frame keeps a value while its body runs.
struct FramePlace {
  enum Base : std::uint8_t { kNowhere, kInRegister, kAtCfa, kAtSp, kAtRegister } base = kNowhere;
  RegisterNumber reg = 0;
  std::int32_t offset = 0;
};

// Windows unwind information of one function: RVAs count from `base`, an address of the process.
struct WindowsUnwind {
  std::uint64_t base = 0;
  winx64::RuntimeFunction function = {};  // x86-64; all 0: none
  // AArch64, ascending; more than one where the function is cut into fragments. A pc that none of them contains is in a
  // leaf, or in front of what the function does to its frame.
  std::span<const winarm64::RuntimeFunction> entries = {};

  [[nodiscard]] bool any() const { return !entries.empty() || function != winx64::RuntimeFunction{}; }
};

struct Clause;      // managed_exception.h
struct Root;        // gc_roots.h
struct CrawlFrame;  // below

// A function of managed code, or a funclet. It belongs to the runtime, and stays as it is while a walk goes on.
struct Method {
  std::uint64_t begin = 0;  // of the code
  std::uint64_t end = 0;
  std::uint64_t id = 0;              // the runtime's: what it knows the method by
  Funclet funclet = Funclet::kNone;  // of `parent`
  const Method* parent = nullptr;    // of a funclet: the method
  bool transparent = false;          // a helper, which crawl marks look past
  WindowsUnwind windows;             // unwound by this, if there is any, else by rows: Runtime::row_at
  FramePlace this_object;
  FramePlace generic_context;        // what tells the exact types of shared generic code
  FramePlace guard;                  // a copy of Runtime::guard_value(), to notice overwritten frames by
  std::span<const std::byte> roots;  // its stack map (gc_roots.h)
  std::span<const Clause> clauses;   // its exception table (managed_exception.h)

  [[nodiscard]] const Method& root() const { return parent != nullptr ? *parent : *this; }
};

// The row that a code range, a code manager or a module of the space has for an address. kNotFound: none has.
[[nodiscard]] Expected<void> row_in_space(const AddressSpace& space, std::uint64_t pc, FrameRow& to);

// The runtime, as a walk asks it. In the own process's signal handlers what it does has to be signal-safe.
class Runtime {
 public:
  virtual ~Runtime() = default;
  // The method whose code contains an address; null where there is none.
  [[nodiscard]] virtual const Method* find(std::uint64_t pc) const = 0;
  // The row of an address in a method without `windows`. Without an override: of the space's code range or manager.
  [[nodiscard]] virtual Expected<void> row_at(const AddressSpace& space, const Method& /*method*/, std::uint64_t pc,
                                              FrameRow& to) const {
    return row_in_space(space, pc, to);
  }
  // Changes whenever rows do, or may: a number of new_generation()'s. 0: walkers keep nothing.
  [[nodiscard]] virtual std::uint64_t generation() const { return 0; }
  // Copied, and cut where it is longer; for who prints.
  [[nodiscard]] virtual std::string_view name(const Method& /*method*/, std::span<char> /*to*/) const { return {}; }
  // Frames of other layouts than explicit_frame.h's. `cookie`: as read_frame().
  [[nodiscard]] virtual Expected<FrameView> read(const Memory& memory, std::uint64_t address,
                                                 const std::uint64_t* cookie) const {
    return read_frame(memory, address, cookie);
  }
  // Of a transition frame: the references among the arguments of the function that is called, which nobody else knows
  // of before it has a frame. The signature says which they are; `frame` has the caller's registers (of its
  // SavedContext, FrameView::context_at) and user data. For each_root().
  [[nodiscard]] virtual Expected<void> each_argument(const CrawlFrame& /*frame*/, const Memory& /*memory*/,
                                                     FunctionRef<void(const Root&)> /*sink*/) const {
    return {};
  }
  // What every Method::guard holds.
  [[nodiscard]] virtual std::uint64_t guard_value() const { return 0; }
  // Is there an object? Asked of `this` unless kAllowInvalidObjects is given.
  [[nodiscard]] virtual bool is_object(std::uint64_t /*reference*/) const { return true; }
};
// Never given twice in a process. Thread-safe, signal-safe.
[[nodiscard]] std::uint64_t new_generation();

// A method's return address that was replaced so that the thread comes to the runtime (suspension.h).
struct Hijack {
  std::uint64_t slot = 0;      // where it stood; 0: none
  std::uint64_t original = 0;  // and what stood there
};

// An exception that is being dispatched: where a walk that comes from its handlers goes on. Like explicit frames on
// the stack, linked, and read as it is by whoever walks.
struct ExceptionRecord {
  std::uint64_t previous = kEndOfFrames;  // address of the one that was under way before; at a higher address
  std::uint64_t cookie = 0;               // FrameList::cookie ^ this record's address
  std::uint64_t object = 0;               // the exception, a root
  std::uint64_t establisher = 0;          // CFA of the frame one of whose funclets runs; 0: none does
  std::uint32_t pass = 0;                 // 1 search, 2 unwind
  std::uint32_t funclet = 0;              // Funclet that runs
  std::uint32_t current = 0;              // which of the contexts counts: the other one may be half written
  std::uint32_t reserved = 0;
  // What has been unwound so far: in the first pass who threw, in the second the establisher.
  SavedContext contexts[2] = {};

  [[nodiscard]] const SavedContext& context() const { return contexts[current & 1]; }
  void set_context(const Registers& registers) {
    contexts[(current & 1) ^ 1].set(registers);
    std::atomic_signal_fence(std::memory_order_release);
    current ^= 1;
  }
};

// A thread as a walk needs it. Of another process: `space` is that, and the addresses are there.
struct ManagedThread {
  const AddressSpace* space = nullptr;
  const Runtime* runtime = nullptr;
  std::uint64_t frames = kEndOfFrames;      // FrameList::top
  std::uint64_t cookie = 0;                 // FrameList::cookie
  std::uint64_t exceptions = kEndOfFrames;  // address of the innermost ExceptionRecord
  Hijack hijack = {};
  // Of the own process: what kPopFrames changes. `frames` and `cookie` are not looked at then.
  FrameList* own_list = nullptr;
  std::uint64_t id = 0;  // what the log calls it by: of the system
};

// ---- flags --------------------------------------------------------------------------------------------------------

using WalkFlags = std::uint32_t;
// Nothing but what stands for a function: methods, and explicit frames with kStandsForFunction.
inline constexpr WalkFlags kFunctionsOnly = 1u << 0;
// Funclets are not shown, nor what lies between one and the frame it is a part of: that one stands for both.
inline constexpr WalkFlags kSkipFunclets = 1u << 1;
// Explicit frames that the walk has passed are taken off the thread's list (ManagedThread::own_list): for unwinding.
inline constexpr WalkFlags kPopFrames = 1u << 2;
// Callers have pc, sp and the frame pointer alone.
inline constexpr WalkFlags kQuickUnwind = 1u << 3;
// Callers have all registers, but not where they were saved: for stack traces.
inline constexpr WalkFlags kLightUnwind = 1u << 4;
// Explicit frames that lie in a method's frame and lead nowhere the walk has not been are shown, before the method.
inline constexpr WalkFlags kHandleSkippedFrames = 1u << 5;
// Where native code called managed code is shown (kNativeMarker).
inline constexpr WalkFlags kNotifyOnUnmanagedToManaged = 1u << 6;
// Managed code that native code called without an explicit frame is no error: the walk goes on at the next one.
inline constexpr WalkFlags kDisableMissingFrameDetection = 1u << 7;
// The thread may stand anywhere, at an instruction; without it and kThreadIsSuspended only behind a call.
inline constexpr WalkFlags kAllowAsyncWalk = 1u << 8;
// It is stopped: where it stands counts as interrupted.
inline constexpr WalkFlags kThreadIsSuspended = 1u << 9;
// `this` is not asked for being an object.
inline constexpr WalkFlags kAllowInvalidObjects = 1u << 10;
// Where the walk goes on at an ExceptionRecord is shown (kNoFrameTransition).
inline constexpr WalkFlags kNotifyOnNoFrameTransitions = 1u << 11;
// That the walk begins in native code is shown (kInitialNativeContext).
inline constexpr WalkFlags kNotifyOnInitialNativeContext = 1u << 12;
// A frame whose catch, finally or fault funclet runs does not report roots that the funclet reports.
inline constexpr WalkFlags kGcFuncletReferences = 1u << 13;
// Neither the frames' cookies nor Method::guard are looked at.
inline constexpr WalkFlags kSkipCookieCheck = 1u << 14;
// Ours: native frames are walked by their call frame information, and shown.
inline constexpr WalkFlags kNativeFrames = 1u << 15;

// ---- what is shown ------------------------------------------------------------------------------------------------

enum class CrawlState : std::uint8_t {
  kUninitialized,
  kFrameless,             // a frame of managed code
  kFrameFunction,         // an explicit frame
  kSkippedFrame,          // an explicit frame in the frame of the method that comes next
  kNoFrameTransition,     // an ExceptionRecord
  kNativeMarker,          // native code, which called what came before
  kInitialNativeContext,  // native code, where the walk begins
  kNativeFrame,           // one frame of native code: kNativeFrames
  kDone,
};
[[nodiscard]] std::string_view state_name(CrawlState state);

struct CrawlFrame {
  CrawlState state = CrawlState::kUninitialized;
  const Method* method = nullptr;  // kFrameless
  FrameView frame;                 // kFrameFunction, kSkippedFrame
  std::uint64_t exception = 0;     // kNoFrameTransition: address of the record
  Registers registers;             // at the frame; of an explicit frame those it was come from by
  SavedLocations saved;            // where they were saved by callees
  std::uint64_t cfa = 0;           // kFrameless: sp of its caller behind the call; what identifies the frame. All
                                   // ones of a thread's outermost frame that nobody has called
  bool first = false;              // of the frames with code
  bool interrupted = false;        // stands at an instruction: nothing was called
  bool faulted = false;            // and will not go on there: only what "execution aborted" allows is a root
  bool reports_roots = true;       // kGcFuncletReferences
  bool saved_known = true;         // not kQuickUnwind or kLightUnwind

  [[nodiscard]] bool frameless() const { return state == CrawlState::kFrameless; }
  [[nodiscard]] CodeAddress pc() const { return registers.pc(); }
  // The runtime's id of the function that the frame stands for; 0: none.
  [[nodiscard]] std::uint64_t function() const;
  // What is at a place of the frame. kNotFound: nowhere, or the register is not known; kUnreadable.
  [[nodiscard]] Expected<std::uint64_t> value(const Memory& memory, const FramePlace& place) const;
};

// ---- the walk -----------------------------------------------------------------------------------------------------

class ManagedWalker {
 public:
  struct State;  // src/managed/walk_state.h

  // `registers` are where the thread is, in native or managed code; without any (known_slots() == 0) the walk begins at
  // the innermost explicit frame. `thread` and what it points to outlive the walker.
  ManagedWalker(const ManagedThread& thread, const Registers& registers, WalkFlags flags);
  ~ManagedWalker();
  ManagedWalker(const ManagedWalker&) = delete;
  ManagedWalker& operator=(const ManagedWalker&) = delete;

  // To the first frame, and to each next one. False at the end: error() says why, if anything was wrong.
  bool next();
  [[nodiscard]] const CrawlFrame& frame() const;
  // kDone without an error: the outermost frame was reached. Errors, `where` an address: kMalformed for a broken list
  // of frames (read_frame), for a guard that was overwritten, a missing frame, a stack that does not move; kNotFound or
  // kUnreadable what unwinding says; kUnsupported for a start at an instruction without leave.
  [[nodiscard]] const std::optional<Error>& error() const;

  // Managed code has run since, and a collector with it: the registers of the frame at hand (kFrameless) as they are
  // now. Its caller is looked for again.
  void refresh(const Registers& registers);

  class Iterator {
   public:
    using value_type = CrawlFrame;
    using difference_type = std::ptrdiff_t;
    explicit Iterator(ManagedWalker* walker) : walker_(walker) { ++*this; }
    const CrawlFrame& operator*() const { return walker_->frame(); }
    const CrawlFrame* operator->() const { return &walker_->frame(); }
    Iterator& operator++() {
      if (!walker_->next()) walker_ = nullptr;
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return walker_ == nullptr; }

   private:
    ManagedWalker* walker_;
  };
  [[nodiscard]] Iterator begin() { return Iterator(this); }
  [[nodiscard]] std::default_sentinel_t end() const { return {}; }

 private:
  static constexpr std::size_t kStateSize = 3584;
  [[nodiscard]] State& state() { return *reinterpret_cast<State*>(storage_); }
  [[nodiscard]] const State& state() const { return *reinterpret_cast<const State*>(storage_); }
  alignas(16) std::byte storage_[kStateSize];  // on the walker's stack: nothing is allocated
};

enum class WalkAction : std::uint8_t { kContinue, kStop, kAbort };
enum class WalkOutcome : std::uint8_t { kDone, kStopped, kAborted, kFailed };  // kFailed: `error`

// Calls callback(frame) for each frame. kStop ends the walk as its end does: frames are off the list as far as it came
// (kPopFrames). kAbort: the walk was in vain, and the list is what it was before.
template <typename Callback>
WalkOutcome walk(const ManagedThread& thread, const Registers& registers, WalkFlags flags, Callback&& callback,
                 Error* error = nullptr) {
  const std::uint64_t top = thread.own_list != nullptr ? thread.own_list->top : kEndOfFrames;
  ManagedWalker walker(thread, registers, flags);
  while (walker.next()) {
    const WalkAction action = callback(walker.frame());
    if (action == WalkAction::kStop) return WalkOutcome::kStopped;
    if (action == WalkAction::kContinue) continue;
    if ((flags & kPopFrames) != 0 && thread.own_list != nullptr) thread.own_list->top = top;
    return WalkOutcome::kAborted;
  }
  if (!walker.error()) return WalkOutcome::kDone;
  if (error != nullptr) *error = *walker.error();
  return WalkOutcome::kFailed;
}

// ---- who called me ------------------------------------------------------------------------------------------------

// Which method above the native code that asks, past transparent ones: CoreCLR's stack crawl marks.
enum class CrawlMark : std::uint8_t { kMyself, kMyCaller, kMyCallersCaller };
// kNotFound where the stack has none; errors as ManagedWalker's.
[[nodiscard]] Expected<CrawlFrame> find_caller(const ManagedThread& thread, const Registers& registers, CrawlMark mark);

// ---- the log ------------------------------------------------------------------------------------------------------

// As CoreCLR's checked builds write it, behind the thread's id in hexadecimal:
// "TID 1f3a: STACKWALK: [003] CONSIDER: FRAMELESS: PC=... SP=... method=...". For all walks
// of the process; null: none, which costs a load a frame. `line` has no newline, and is called on the walking thread.
using WalkLog = void (*)(std::string_view line, void* user);
void set_walk_log(WalkLog log, void* user);

}  // namespace windlass::managed
