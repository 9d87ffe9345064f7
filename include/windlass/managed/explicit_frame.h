// Explicit frames: structures on the stack by which a managed runtime's native code tells walks where managed code
// stands.
//
// A thread pushes an explicit frame when managed code calls native code, or is stopped midway. A list links the frames
// of a thread, from the innermost to the outermost. CoreCLR's `Frame` and HotSpot's `JavaFrameAnchor` are explicit
// frames too.
//
// For example, a runtime helper that generated code calls:
//
//   thread_local FrameList frames;   // Or in the runtime's own thread object.
//
//   Object* allocate_slow(std::size_t size, Object** keep) {
//     HelperFrame<1> frame(keep);   // The collector finds, and may move, *keep.
//     capture(frame);               // Where the helper is. The caller is found on demand.
//
//     Pushed pushed(frames, frame);
//     return collect_and_allocate(size);
//   }
//
// All types have a fixed layout, and contain addresses instead of pointers. So a signal handler, another process and a
// reader of core files can read the list directly. Generated code first writes the other words of a frame. Then three
// instructions link the frame, and two take it off. Here the list is in rdi or x0, the frame in rsi or x1.
//
//   x86-64   mov rax, [rdi]; mov [rsi], rax; mov [rdi], rsi
//
//   AArch64  ldr x9, [x0]; str x9, [x1]; str x1, [x0]
//
// To take the frame off:
//
//   x86-64   mov rax, [rsi]; mov [rdi], rax
//
//   AArch64  ldr x9, [x1]; str x9, [x0]
//
// Only the thread itself changes its list. Pushing and popping neither allocate nor lock, and are signal-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "windlass/backtrace.h"
#include "windlass/error.h"
#include "windlass/registers.h"
#include "windlass/walk.h"

namespace windlass::managed {

// ---- layout -------------------------------------------------------------------------------------------------------

// Why the managed code is not on top of the stack. CoreCLR's names are in brackets.
enum class FrameKind : std::uint16_t {
  kInlinedCall,         // Generated code calls native code itself [InlinedCallFrame].
  kHelper,              // Managed code called a helper of the runtime [HelperMethodFrame].
  kCallback,            // Native code called managed code: the border, without registers [UMThunk, DebuggerU2M].
  kTransition,          // Managed code called a function that is not compiled yet; arguments are in registers
                        // [PrestubMethodFrame].
  kFaulting,            // Managed code faulted [FaultingExceptionFrame].
  kHijacked,            // A method returned to the runtime instead of its caller [HijackFrame].
  kRedirected,          // Managed code was interrupted and sent to the runtime [ResumableFrame].
  kTailCall,            // A helper made a call that leaves no frame of its caller [TailCallFrame].
  kExceptionFilter,     // A filter runs in the first pass [ExceptionFilterFrame].
  kDebuggerMarker,      // A place where a debugger stops [DebuggerClassInitMarkFrame].
  kFunctionEvaluation,  // A debugger called a function where the thread was stopped [FuncEvalFrame].
  kUser = 0x100,        // From here on: the runtime's own kinds.
};
// A word for people. Signal-safe.
[[nodiscard]] std::string_view kind_name(FrameKind kind);

// How the managed code behind a frame is found. The form says what follows the header.
enum class FrameForm : std::uint8_t {
  kMarker,    // Nothing: other frames, or the stack itself, lead to managed code.
  kCallSite,  // CallSite: pc, sp and frame pointer behind the call. No other register is known.
  // SavedContext: pc, sp and all registers that calls preserve. The code that made the frame restores the registers
  // from it.
  kSaved,
  kContext,  // SavedContext of an interrupted instruction: all registers.
  kLazy,     // SavedContext of native code, whose callers are unwound up to managed code.
};

// Bits of ExplicitFrame::attributes.
inline constexpr std::uint8_t kStandsForFunction = 1;  // Shown as a function, ExplicitFrame::user.
inline constexpr std::uint8_t kFaulted = 2;            // The managed code behind the frame will not go on from there.
inline constexpr std::uint8_t kFrameAborted = 4;       // The frame's references are no longer roots.

// Bits of the words at ExplicitFrame::references, beside the 8-aligned address.
inline constexpr std::uint64_t kInterior = 1;  // The reference may point into the middle of an object.
inline constexpr std::uint64_t kPinned = 2;    // The object may not move.

// The end of a list.
inline constexpr std::uint64_t kEndOfFrames = ~std::uint64_t{0};

// The header of an explicit frame.
struct ExplicitFrame {
  std::uint64_t next = kEndOfFrames;  // The address of the next outer frame.
  std::uint64_t cookie = 0;           // FrameList::cookie ^ this frame's address.
  std::uint16_t kind = 0;             // A FrameKind.
  std::uint8_t form = 0;              // A FrameForm.
  std::uint8_t attributes = 0;
  std::uint32_t reference_count = 0;
  // The address of `reference_count` words. Each is the address of an object reference, which is a root. The lowest
  // bits are kInterior and kPinned.
  std::uint64_t references = 0;
  // The runtime's own, for example the function that is called.
  std::uint64_t user = 0;
};
static_assert(std::is_standard_layout_v<ExplicitFrame> && sizeof(ExplicitFrame) == 40);

// What follows the header of a kCallSite frame.
struct CallSite {
  std::uint64_t pc = 0;  // The return address. 0: no call is under way, and the frame says nothing.
  std::uint64_t sp = 0;  // As the call has left sp.
  std::uint64_t fp = 0;  // The frame pointer.
};

// The slots that windlass_capture() stores: the registers that calls preserve, sp and pc. Bit n stands for slot n of
// Registers.
#if defined(__x86_64__)
inline constexpr std::uint64_t kCapturedSlots = 0x1'f0c8;  // rbx rbp rsp r12-r15 rip.
#else
inline constexpr std::uint64_t kCapturedSlots = 0xff1'bff8'0000;  // x19-x29 sp pc d8-d15.
#endif

// Registers by their slots (see Registers). Bit n of `known` is set if value[n] is known.
struct SavedContext {
  std::uint64_t known = 0;
  std::uint64_t return_address = 0;  // 1: pc is a return address. 0: pc is an instruction.
  std::uint64_t value[Registers::kSlots] = {};

  // Conversions from and to Registers. Signal-safe.
  void set(const Registers& registers);
  [[nodiscard]] Registers registers(Architecture architecture) const;
};

// A frame for a call that generated code makes itself.
struct CallSiteFrame {
  ExplicitFrame header{.kind = static_cast<std::uint16_t>(FrameKind::kInlinedCall),
                       .form = static_cast<std::uint8_t>(FrameForm::kCallSite)};
  CallSite site;
};

// A frame without registers.
struct MarkerFrame {
  explicit MarkerFrame(FrameKind kind = FrameKind::kCallback) { header.kind = static_cast<std::uint16_t>(kind); }
  ExplicitFrame header;
};

// A frame with registers: kSaved, kContext or kLazy.
struct ContextFrame {
  explicit ContextFrame(FrameKind kind, FrameForm form, std::uint8_t attributes = 0) {
    header.kind = static_cast<std::uint16_t>(kind);
    header.form = static_cast<std::uint8_t>(form);
    header.attributes = attributes;
  }
  ExplicitFrame header;
  SavedContext context;
};

// A word at ExplicitFrame::references. For example, HelperFrame<2> frame(&object, interior(&cursor)).
struct Reference {
  template <typename T>
  Reference(T* at)  // NOLINT(google-explicit-constructor): the usual case
      : word(reinterpret_cast<std::uint64_t>(at)) {}
  std::uint64_t word;
};
[[nodiscard]] inline Reference interior(Reference reference) {
  reference.word |= kInterior;
  return reference;
}
[[nodiscard]] inline Reference pinned(Reference reference) {
  reference.word |= kPinned;
  return reference;
}

// A helper's frame, with references of its own that the collector must find.
template <std::size_t kReferences>
struct HelperFrame {
  template <typename... Given>
  requires(sizeof...(Given) == kReferences &&
           (std::is_convertible_v<Given, Reference> && ...)) explicit HelperFrame(Given... reference)
      : references{Reference(reference).word...} {
    header.kind = static_cast<std::uint16_t>(FrameKind::kHelper);
    header.form = static_cast<std::uint8_t>(FrameForm::kLazy);
    header.reference_count = kReferences;
    header.references = reinterpret_cast<std::uint64_t>(references);
  }
  ExplicitFrame header;
  SavedContext context;
  std::uint64_t references[kReferences == 0 ? 1 : kReferences] = {};
};

// Captures where the calling function is, and the registers that calls preserve. 20 ns. A walk that needs the frame's
// caller unwinds from there.
template <typename F>
[[gnu::always_inline]] inline void capture(F& frame) {
  windlass_capture(frame.context.value);
  frame.context.known = kCapturedSlots;
  frame.context.return_address = 1;
}

// ---- a thread's list ----------------------------------------------------------------------------------------------

// The list of a thread.
struct FrameList {
  FrameList();  // With a cookie that other processes cannot guess.

  // The address of the innermost frame. First, so that generated code finds it at the list's own address.
  std::uint64_t top = kEndOfFrames;
  std::uint64_t cookie;

  // Links a frame as the innermost.
  void push(ExplicitFrame& frame) {
    frame.next = top;
    frame.cookie = cookie ^ reinterpret_cast<std::uint64_t>(&frame);
    std::atomic_signal_fence(std::memory_order_release);  // A handler that interrupts sees the whole frame, or no
                                                          // frame.
    top = reinterpret_cast<std::uint64_t>(&frame);
  }
  // Takes off the innermost frame.
  void pop(const ExplicitFrame& frame) { top = frame.next; }
};
static_assert(std::is_standard_layout_v<FrameList>);

// Pushes a frame, and pops it at the end of the scope.
class Pushed {
 public:
  template <typename F>
  Pushed(FrameList& list, F& frame) : list_(list), frame_(frame.header) {
    list_.push(frame_);
  }
  ~Pushed() { list_.pop(frame_); }
  Pushed(const Pushed&) = delete;
  Pushed& operator=(const Pushed&) = delete;

 private:
  FrameList& list_;
  ExplicitFrame& frame_;
};

// ---- reading ------------------------------------------------------------------------------------------------------

// A frame as it was read, from this process or another.
struct FrameView {
  std::uint64_t address = 0;
  std::uint64_t next = kEndOfFrames;
  FrameKind kind = FrameKind::kInlinedCall;
  FrameForm form = FrameForm::kMarker;
  std::uint8_t attributes = 0;
  std::uint32_t reference_count = 0;
  std::uint64_t references = 0;
  std::uint64_t user = 0;
  CallSite site = {};  // For kCallSite.
  // For kSaved, kContext and kLazy: the address of the SavedContext. 0: none.
  std::uint64_t context_at = 0;

  // True if the frame is shown as a function.
  [[nodiscard]] bool stands_for_function() const { return (attributes & kStandsForFunction) != 0; }
  // True if the frame leads to managed code: neither a marker, nor a call site without a call.
  [[nodiscard]] bool has_registers() const {
    return form == FrameForm::kCallSite ? site.pc != 0 : form != FrameForm::kMarker;
  }
};

// Reads the frame at an address. Neither allocates nor locks. Errors, with the address as `where`: kUnreadable, and
// kMalformed for
//
// - an address that is not 8-aligned.
// - an unknown kind or form.
// - a wrong cookie (`detail` is the cookie there), unless `cookie` is null.
// - a next frame that does not lie above this frame (`detail` is its address).
[[nodiscard]] Expected<FrameView> read_frame(const Memory& memory, std::uint64_t address, const std::uint64_t* cookie);

}  // namespace windlass::managed
