// Explicit frames: what a managed runtime's native code leaves on the stack for those who walk it. Where managed code
// calls native code, or is stopped in the middle of it, the thread has a structure on its stack that says where the
// managed code stands; a list links a thread's, from the innermost to the outermost. CoreCLR's `Frame` and HotSpot's
// `JavaFrameAnchor` are such.
//
//   thread_local FrameList frames;                          // or in the runtime's own thread object
//
//   Object* allocate_slow(std::size_t size, Object** keep) {  // a runtime helper, called by generated code
//     HelperFrame<1> frame(keep);                             // the collector finds, and may move, *keep
//     capture(frame);                                         // where we are: who called is found when asked
//
//     Pushed pushed(frames, frame);
//     return collect_and_allocate(size);
//   }
//
// All types have a fixed layout, addresses are stored as such and nothing points out of the process: a signal handler,
// another process and a core file's reader read the list as it is. Generated code links a frame whose other words it
// has written with three instructions, and takes it off with two (list in rdi, x0; frame in rsi, x1):
//
//   x86-64   mov rax, [rdi]; mov [rsi], rax; mov [rdi], rsi   ...   mov rax, [rsi]; mov [rdi], rax
//   AArch64  ldr x9, [x0]; str x9, [x1]; str x1, [x0]         ...   ldr x9, [x1]; str x9, [x0]
//
// One thread's list is changed by that thread alone. Pushing and popping neither allocate nor lock; signal-safe.
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

// Why managed code is not what runs on top of the stack. The names in brackets are CoreCLR's.
enum class FrameKind : std::uint16_t {
  kInlinedCall,         // generated code calls native code itself [InlinedCallFrame]
  kHelper,              // it called a helper of the runtime [HelperMethodFrame]
  kCallback,            // native code called managed code: the border, without registers [UMThunk, DebuggerU2M]
  kTransition,          // it called a function that is not compiled yet, arguments in registers [PrestubMethodFrame]
  kFaulting,            // it faulted [FaultingExceptionFrame]
  kHijacked,            // it returned to the runtime instead of its caller [HijackFrame]
  kRedirected,          // it was interrupted and sent to the runtime [ResumableFrame]
  kTailCall,            // a call that leaves no frame of its caller was made through a helper [TailCallFrame]
  kExceptionFilter,     // a filter runs in the first pass [ExceptionFilterFrame]
  kDebuggerMarker,      // a debugger's: a place to stop at [DebuggerClassInitMarkFrame]
  kFunctionEvaluation,  // the debugger called a function where the thread was stopped [FuncEvalFrame]
  kUser = 0x100,        // and what lies behind: the runtime's own
};
[[nodiscard]] std::string_view kind_name(FrameKind kind);

// How the managed code behind a frame is found: what follows the header.
enum class FrameForm : std::uint8_t {
  kMarker,    // nothing: other frames, or the stack itself, say
  kCallSite,  // CallSite: pc, sp and frame pointer behind the call. No other register is known
  kSaved,     // SavedContext: pc, sp and all that calls preserve; the code that made the frame restores them from it
  kContext,   // SavedContext, of an interrupted instruction: all registers
  kLazy,      // SavedContext of native code: its callers are unwound until there is managed code
};

// Bits of ExplicitFrame::attributes.
inline constexpr std::uint8_t kStandsForFunction = 1;  // it is shown as a function, ExplicitFrame::user
inline constexpr std::uint8_t kFaulted = 2;            // the managed code behind it will not go on from there
inline constexpr std::uint8_t kFrameAborted = 4;       // its references are no roots any more

// Bits of the words at ExplicitFrame::references, beside the 8-aligned address.
inline constexpr std::uint64_t kInterior = 1;  // the reference may point into an object
inline constexpr std::uint64_t kPinned = 2;    // what it points to may not move

inline constexpr std::uint64_t kEndOfFrames = ~std::uint64_t{0};

struct ExplicitFrame {
  std::uint64_t next = kEndOfFrames;  // address of the next outer one
  std::uint64_t cookie = 0;           // FrameList::cookie ^ this frame's address
  std::uint16_t kind = 0;             // FrameKind
  std::uint8_t form = 0;              // FrameForm
  std::uint8_t attributes = 0;
  std::uint32_t reference_count = 0;
  std::uint64_t references = 0;  // address of so many words: each the address of an object reference, which is a
                                 // root, with kInterior and kPinned in its lowest bits
  std::uint64_t user = 0;        // the runtime's: the function that is called, say
};
static_assert(std::is_standard_layout_v<ExplicitFrame> && sizeof(ExplicitFrame) == 40);

struct CallSite {
  std::uint64_t pc = 0;  // the return address; 0: no call is under way, the frame says nothing
  std::uint64_t sp = 0;  // as the call has left it
  std::uint64_t fp = 0;
};

// What windlass_capture() stores: the registers that calls preserve, sp and pc.
#if defined(__x86_64__)
inline constexpr std::uint64_t kCapturedSlots = 0x1'f0c8;  // rbx rbp rsp r12-r15 rip
#else
inline constexpr std::uint64_t kCapturedSlots = 0xff1'bff8'0000;  // x19-x29 sp pc d8-d15
#endif

// Registers by their slots (Registers), and which of them there are.
struct SavedContext {
  std::uint64_t known = 0;
  std::uint64_t return_address = 0;  // pc: 1 a return address, 0 an instruction
  std::uint64_t value[Registers::kSlots] = {};

  void set(const Registers& registers);
  [[nodiscard]] Registers registers(Architecture architecture) const;
};

struct CallSiteFrame {
  ExplicitFrame header{.kind = static_cast<std::uint16_t>(FrameKind::kInlinedCall),
                       .form = static_cast<std::uint8_t>(FrameForm::kCallSite)};
  CallSite site;
};

struct MarkerFrame {
  explicit MarkerFrame(FrameKind kind = FrameKind::kCallback) { header.kind = static_cast<std::uint16_t>(kind); }
  ExplicitFrame header;
};

// kSaved, kContext and kLazy.
struct ContextFrame {
  explicit ContextFrame(FrameKind kind, FrameForm form, std::uint8_t attributes = 0) {
    header.kind = static_cast<std::uint16_t>(kind);
    header.form = static_cast<std::uint8_t>(form);
    header.attributes = attributes;
  }
  ExplicitFrame header;
  SavedContext context;
};

// One word at ExplicitFrame::references: HelperFrame<2> frame(&object, interior(&cursor)).
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

// A helper's, with references of its own that the collector may not lose.
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

// The lazy machine state: where the calling function is, and what it has in registers. 20 ns; who asks for the frame's
// caller unwinds from here.
template <typename F>
[[gnu::always_inline]] inline void capture(F& frame) {
  windlass_capture(frame.context.value);
  frame.context.known = kCapturedSlots;
  frame.context.return_address = 1;
}

// ---- a thread's list ----------------------------------------------------------------------------------------------

struct FrameList {
  FrameList();  // with a cookie that other processes cannot guess

  std::uint64_t top = kEndOfFrames;  // address of the innermost frame: first, so that code finds it at the list's own
  std::uint64_t cookie;

  void push(ExplicitFrame& frame) {
    frame.next = top;
    frame.cookie = cookie ^ reinterpret_cast<std::uint64_t>(&frame);
    std::atomic_signal_fence(std::memory_order_release);  // a handler that interrupts sees it whole or not at all
    top = reinterpret_cast<std::uint64_t>(&frame);
  }
  void pop(const ExplicitFrame& frame) { top = frame.next; }
};
static_assert(std::is_standard_layout_v<FrameList>);

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

// A frame as it was read, of this process or of another one.
struct FrameView {
  std::uint64_t address = 0;
  std::uint64_t next = kEndOfFrames;
  FrameKind kind = FrameKind::kInlinedCall;
  FrameForm form = FrameForm::kMarker;
  std::uint8_t attributes = 0;
  std::uint32_t reference_count = 0;
  std::uint64_t references = 0;
  std::uint64_t user = 0;
  CallSite site = {};            // kCallSite
  std::uint64_t context_at = 0;  // kSaved, kContext, kLazy: address of the SavedContext; 0: none

  [[nodiscard]] bool stands_for_function() const { return (attributes & kStandsForFunction) != 0; }
  // It leads to managed code: neither a marker nor a call site without a call.
  [[nodiscard]] bool has_registers() const {
    return form == FrameForm::kCallSite ? site.pc != 0 : form != FrameForm::kMarker;
  }
};

// The frame at an address. Errors, `where` the address: kUnreadable; kMalformed for one that is not 8-aligned, for a
// kind or form that there is not, for a wrong cookie (`detail`: the one that stands there) unless `cookie` is null,
// and for a next frame that does not lie above it (`detail`: its address). Neither allocates nor locks.
[[nodiscard]] Expected<FrameView> read_frame(const Memory& memory, std::uint64_t address, const std::uint64_t* cookie);

}  // namespace windlass::managed
