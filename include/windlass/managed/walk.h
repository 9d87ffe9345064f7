// Walks stacks that mix managed code, a runtime's helpers and native code: for collectors, exceptions, suspension,
// debuggers and profilers.
//
// A managed frame is unwound by Windows unwind information or by rows. Native code in between is passed by explicit
// frames (managed/explicit_frame.h). With kNativeFrames it is walked by its call frame information. States and flags
// are those of CoreCLR's StackFrameIterator. docs/how-to/write-a-runtime-walker.md shows how to write a walk.
//
// For example:
//
//   for (const CrawlFrame& frame : ManagedWalker(thread, registers, kFunctionsOnly)) use(frame);
//
//   walk(thread, registers, kFunctionsOnly, [&](const CrawlFrame& frame) { ...; return WalkAction::kContinue; });
//
// A walk neither allocates nor locks if the functions of Runtime do neither; it is then signal-safe. Any number of
// threads may walk at a time, each with its own walker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "windlass/bytes.h"
#include "windlass/format/winarm64.h"
#include "windlass/format/winx64.h"
#include "windlass/function_ref.h"
#include "windlass/managed/clause.h"
#include "windlass/managed/explicit_frame.h"
#include "windlass/walk.h"

namespace windlass::managed {

// ---- what a runtime tells -----------------------------------------------------------------------------------------

// The kind of a funclet: a part of a method that was compiled as a function of its own. The dispatch of exceptions
// calls it. kNone: no funclet.
enum class Funclet : std::uint8_t { kNone, kFilter, kCatch, kFinally, kFault };

// Where a frame keeps a value while its body runs: in a register, or in memory at `offset` from a base. For example,
// {kAtCfa, 0, -16} is the word 16 bytes below the CFA.
struct FramePlace {
  enum Base : std::uint8_t { kNowhere, kInRegister, kAtCfa, kAtSp, kAtRegister } base = kNowhere;
  RegisterNumber reg = 0;
  std::int32_t offset = 0;
};

// Windows unwind information of a function. RVAs count from `base`, an address of the process.
struct WindowsUnwind {
  std::uint64_t base = 0;
  winx64::RuntimeFunction function = {};  // x86-64; all 0: none.
  // AArch64, ascending. A function that is cut into fragments has more than one entry. A pc outside of all entries is
  // in a leaf, or before the code that changes the frame.
  std::span<const winarm64::RuntimeFunction> entries = {};

  // True if there is any unwind information.
  [[nodiscard]] bool any() const { return !entries.empty() || function != winx64::RuntimeFunction{}; }
};

struct Root;        // managed/gc_roots.h.
struct CrawlFrame;  // Below.

// A function of managed code, or a funclet. The runtime owns this object, which does not change during a walk.
struct Method {
  std::uint64_t begin = 0;           // The first address of the code.
  std::uint64_t end = 0;             // The address behind the last.
  std::uint64_t id = 0;              // The runtime's own name for the method.
  Funclet funclet = Funclet::kNone;  // The kind, if this is a funclet of `parent`.
  const Method* parent = nullptr;    // For a funclet: its method.
  bool transparent = false;          // True for a helper that crawl marks look past.
  WindowsUnwind windows;             // Used to unwind, if there is any. Else Runtime::row_at() is used.
  FramePlace this_object;            // Where the frame keeps `this`.
  FramePlace generic_context;        // Says the exact types of shared generic code.
  FramePlace guard;                  // Holds Runtime::guard_value(), to detect overwritten frames.
  std::span<const std::byte> roots;  // The stack map (managed/gc_roots.h).
  std::span<const Clause> clauses;   // The exception table (managed/clause.h).

  // The method that this is a funclet of, or this method itself.
  [[nodiscard]] const Method& root() const { return parent != nullptr ? *parent : *this; }
};

// The row for an address from the space: from a code range, a code manager or a module. kNotFound if none has a row.
[[nodiscard]] Expected<void> row_in_space(const AddressSpace& space, std::uint64_t pc, FrameRow& to);

// The runtime, as a walk sees it. If signal handlers of this process walk, these functions must be signal-safe.
class Runtime {
 public:
  virtual ~Runtime() = default;
  // The method whose code contains an address; null if there is none.
  [[nodiscard]] virtual const Method* find(std::uint64_t pc) const = 0;
  // The row of an address in a method without `windows`. Without an override: the row of row_in_space().
  [[nodiscard]] virtual Expected<void> row_at(const AddressSpace& space, const Method& /*method*/, std::uint64_t pc,
                                              FrameRow& to) const {
    return row_in_space(space, pc, to);
  }
  // A number from new_generation(), which changes whenever rows change or may change. 0: walkers keep no rows.
  [[nodiscard]] virtual std::uint64_t generation() const { return 0; }
  // The name of a method, for printing: copied to `to`, and cut if longer.
  [[nodiscard]] virtual std::string_view name(const Method& /*method*/, std::span<char> /*to*/) const { return {}; }
  // Reads explicit frames whose layout is not that of managed/explicit_frame.h. `cookie` as for read_frame().
  [[nodiscard]] virtual Expected<FrameView> read(const Memory& memory, std::uint64_t address,
                                                 const std::uint64_t* cookie) const {
    return read_frame(memory, address, cookie);
  }
  // For each_root(): calls `sink` for each reference among the arguments of a transition frame's callee. Until the
  // callee has a frame, no other code reports these. The callee's signature says which arguments are references.
  // `frame` has user data, and the caller's registers in its SavedContext (FrameView::context_at).
  [[nodiscard]] virtual Expected<void> each_argument(const CrawlFrame& /*frame*/, const Memory& /*memory*/,
                                                     FunctionRef<void(const Root&)> /*sink*/) const {
    return {};
  }
  // The value that every Method::guard holds.
  [[nodiscard]] virtual std::uint64_t guard_value() const { return 0; }
  // True if an object is at this address. Called for `this`, unless kAllowInvalidObjects is given.
  [[nodiscard]] virtual bool is_object(std::uint64_t /*reference*/) const { return true; }
};
// A number never given before in this process; never 0. Thread-safe, signal-safe.
[[nodiscard]] std::uint64_t new_generation();

// A method's return address that was replaced, so that the thread comes to the runtime (managed/suspension.h).
struct Hijack {
  std::uint64_t slot = 0;      // The address of the replaced word; 0: none.
  std::uint64_t original = 0;  // The return address that was there.
};

// An exception that is being dispatched. The record says where a walk that comes from the exception's handlers goes on.
// Records are on the stack and linked, like explicit frames, and walks read them directly.
struct ExceptionRecord {
  std::uint64_t previous = kEndOfFrames;  // The address of the record of the exception that was under way before.
                                          // Higher than this address.
  std::uint64_t cookie = 0;               // FrameList::cookie ^ this record's address.
  std::uint64_t object = 0;               // The exception, a root.
  std::uint64_t establisher = 0;          // The CFA of the frame whose funclet runs; 0: no funclet runs.
  std::uint32_t pass = 0;                 // 1: search. 2: unwind.
  std::uint32_t funclet = 0;              // The kind of the funclet that runs, a Funclet.
  std::uint32_t current = 0;              // The index of the valid context. The other may be half written.
  std::uint32_t reserved = 0;
  // How far the stack is unwound: in the first pass, the throwing frame; in the second pass, the establisher.
  SavedContext contexts[2] = {};

  // The valid context.
  [[nodiscard]] const SavedContext& context() const { return contexts[current & 1]; }
  // Makes a context valid, so that a signal handler sees the old or the new, and never half.
  void set_context(const Registers& registers) {
    contexts[(current & 1) ^ 1].set(registers);
    std::atomic_signal_fence(std::memory_order_release);
    current ^= 1;
  }
};

// A thread, for walks. For a thread of another process, `space` is that process, and all addresses are addresses there.
struct ManagedThread {
  const AddressSpace* space = nullptr;
  const Runtime* runtime = nullptr;
  std::uint64_t frames = kEndOfFrames;      // FrameList::top.
  std::uint64_t cookie = 0;                 // FrameList::cookie.
  std::uint64_t exceptions = kEndOfFrames;  // The address of the innermost ExceptionRecord.
  Hijack hijack = {};
  // For a thread of this process: the list that kPopFrames changes. If set, `frames` and `cookie` are ignored.
  FrameList* own_list = nullptr;
  std::uint64_t id = 0;  // The system's thread id, for the log.
};

// ---- flags --------------------------------------------------------------------------------------------------------

// Bits, combined with |.
using WalkFlags = std::uint32_t;
// Show functions only: methods, and explicit frames with kStandsForFunction.
inline constexpr WalkFlags kFunctionsOnly = 1u << 0;
// Show neither funclets, nor the frames between a funclet and its parent's frame. The parent's frame stands for both.
inline constexpr WalkFlags kSkipFunclets = 1u << 1;
// Take explicit frames off the thread's list (ManagedThread::own_list) when the walk has passed them: for unwinding.
inline constexpr WalkFlags kPopFrames = 1u << 2;
// Find only pc, sp and the frame pointer of callers.
inline constexpr WalkFlags kQuickUnwind = 1u << 3;
// Find all registers of callers, but not where they were saved: for stack traces.
inline constexpr WalkFlags kLightUnwind = 1u << 4;
// Also show explicit frames that lie inside a method's frame and lead to no new place. These come before the method.
inline constexpr WalkFlags kHandleSkippedFrames = 1u << 5;
// Show where native code called managed code (kNativeMarker).
inline constexpr WalkFlags kNotifyOnUnmanagedToManaged = 1u << 6;
// Accept managed code that native code called without an explicit frame. Without this flag such code is an error. The
// walk goes on at the next explicit frame.
inline constexpr WalkFlags kDisableMissingFrameDetection = 1u << 7;
// The thread may stand at any instruction. Without this flag and kThreadIsSuspended, it must stand behind a call.
inline constexpr WalkFlags kAllowAsyncWalk = 1u << 8;
// The thread is stopped: the place where it stands counts as interrupted.
inline constexpr WalkFlags kThreadIsSuspended = 1u << 9;
// Do not call Runtime::is_object() for `this`.
inline constexpr WalkFlags kAllowInvalidObjects = 1u << 10;
// Show where the walk goes on at an ExceptionRecord (kNoFrameTransition).
inline constexpr WalkFlags kNotifyOnNoFrameTransitions = 1u << 11;
// Show that the walk begins in native code (kInitialNativeContext).
inline constexpr WalkFlags kNotifyOnInitialNativeContext = 1u << 12;
// While a catch, finally or fault funclet runs, its parent's frame does not report the roots that the funclet reports.
inline constexpr WalkFlags kGcFuncletReferences = 1u << 13;
// Check neither the frames' cookies nor Method::guard.
inline constexpr WalkFlags kSkipCookieCheck = 1u << 14;
// Not in CoreCLR: walk native frames by their call frame information, and show them.
inline constexpr WalkFlags kNativeFrames = 1u << 15;

// ---- what is shown ------------------------------------------------------------------------------------------------

// What a frame of a walk is.
enum class CrawlState : std::uint8_t {
  kUninitialized,
  kFrameless,             // A frame of managed code.
  kFrameFunction,         // An explicit frame.
  kSkippedFrame,          // An explicit frame inside the frame of the method that comes next.
  kNoFrameTransition,     // An ExceptionRecord.
  kNativeMarker,          // Native code that called the frames before.
  kInitialNativeContext,  // Native code, where the walk begins.
  kNativeFrame,           // A frame of native code, with kNativeFrames.
  kDone,
};
// A word for people. Signal-safe.
[[nodiscard]] std::string_view state_name(CrawlState state);

// A frame of a walk, valid until the next step. A member without a state in its comment is set for all states.
struct CrawlFrame {
  CrawlState state = CrawlState::kUninitialized;
  const Method* method = nullptr;  // kFrameless.
  FrameView frame;                 // kFrameFunction and kSkippedFrame.
  std::uint64_t exception = 0;     // kNoFrameTransition: the address of the record.
  // The registers at the frame. For an explicit frame: the registers from which the walk came to it.
  Registers registers;
  SavedLocations saved;  // Where callees saved the registers.
  // kFrameless: the caller's sp behind the call, which identifies the frame. All ones for a thread's outermost frame,
  // which no code has called.
  std::uint64_t cfa = 0;
  bool first = false;        // The first of the frames that have code.
  bool interrupted = false;  // The frame stands at an instruction: nothing was called.
  // The frame will not go on from here. Only roots that "execution aborted" allows are roots.
  bool faulted = false;
  bool reports_roots = true;  // False only with kGcFuncletReferences.
  bool saved_known = true;    // False with kQuickUnwind and kLightUnwind.

  // True for a frame of managed code.
  [[nodiscard]] bool frameless() const { return state == CrawlState::kFrameless; }
  [[nodiscard]] CodeAddress pc() const { return registers.pc(); }
  // The runtime's number of the function that the frame stands for; 0: none.
  [[nodiscard]] std::uint64_t function() const;
  // The value at a place of the frame. Errors: kNotFound if `place` is nowhere, or if its register is not known;
  // kUnreadable.
  [[nodiscard]] Expected<std::uint64_t> value(const Memory& memory, const FramePlace& place) const;
};

// ---- the walk -----------------------------------------------------------------------------------------------------

// The walk over the frames of a thread, innermost first. 3.5 KiB, and no memory beyond that.
class ManagedWalker {
 public:
  struct State;  // src/managed/walk_state.h

  // Starts a walk. `registers` are where the thread is, in native or managed code. Without any register (known_slots()
  // == 0), the walk begins at the innermost explicit frame. `thread`, and all that it points to, outlive the walker.
  ManagedWalker(const ManagedThread& thread, const Registers& registers, WalkFlags flags);
  ~ManagedWalker();
  ManagedWalker(const ManagedWalker&) = delete;
  ManagedWalker& operator=(const ManagedWalker&) = delete;

  // Goes to the first frame, and later to each next frame. False at the end: error() then says if anything was wrong.
  bool next();
  // The frame at hand, after next() has returned true.
  [[nodiscard]] const CrawlFrame& frame() const;
  // The error that ended the walk. No error: the outermost frame was reached. `where` is an address.
  //
  // - kMalformed: a broken list of explicit frames (read_frame()), an overwritten guard, a missing frame, or a stack
  //   that does not move.
  // - kNotFound or kUnreadable: from unwinding.
  // - kUnsupported: the thread stands at an instruction, and no flag allows that.
  [[nodiscard]] const std::optional<Error>& error() const;

  // Gives the frame at hand (kFrameless) its present registers: after managed code has run, and perhaps a collector.
  // The caller is searched again.
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
  alignas(16) std::byte storage_[kStateSize];  // On the walker's stack: nothing is allocated.
};

// Returned by a callback of walk(): go on, end the walk, or end and undo.
enum class WalkAction : std::uint8_t { kContinue, kStop, kAbort };
// How walk() ended. kFailed: `error` says why.
enum class WalkOutcome : std::uint8_t { kDone, kStopped, kAborted, kFailed };

// Calls callback(frame) for each frame. With kPopFrames, kStop leaves the list as it is then: without the frames that
// the walk has passed. kAbort restores the list as it was before the walk.
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

// Which method above the calling native code, not counting transparent methods: CoreCLR's stack crawl marks. For
// example, kMyself is the method that called the native code.
enum class CrawlMark : std::uint8_t { kMyself, kMyCaller, kMyCallersCaller };
// Finds that method's frame. kNotFound if the stack has none; else errors of ManagedWalker.
[[nodiscard]] Expected<CrawlFrame> find_caller(const ManagedThread& thread, const Registers& registers, CrawlMark mark);

// ---- the log ------------------------------------------------------------------------------------------------------

// Receives lines of a walk, like those of CoreCLR's checked builds, behind the thread's id in hexadecimal. For example:
// "TID 1f3a: STACKWALK: [003] CONSIDER: FRAMELESS: PC=... SP=... method=...". A line has no newline. Called on the
// walking thread.
using WalkLog = void (*)(std::string_view line, void* user);
// Sets the log of all walks of the process. Null: no log, which takes one load a frame.
void set_walk_log(WalkLog log, void* user);

}  // namespace windlass::managed
