// Two-pass exceptions in managed code.
//
// - The first pass looks for a handler, from the throwing frame outwards. Filters are called, and nothing is unwound.
// - The second pass runs the cleanups, and then the handler.
//
// Handlers, filters and cleanups are funclets: functions of their own that work on the frame of their method. Exception
// tables are scope tables as __C_specific_handler's (Microsoft, "x64 exception handling"). The runtime decides what a
// clause catches, how a stack trace is kept, and what happens at native code: see Personality.
//
// For example:
//
//   [[noreturn]] void throw_object(Object* object) { raise(thread, reinterpret_cast<std::uint64_t>(object)); }
//
// Not signal-safe, except redirect_fault(). Takes much stack: see kRoomToThrow. Takes no lock, and allocates only to
// unwind native code. x86-64 and AArch64, Linux. A thread with a shadow stack (CET) cannot throw: the process ends with
// a message on stderr.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "windlass/managed/clause.h"
#include "windlass/managed/walk.h"

namespace windlass::managed {

// ---- exception tables ---------------------------------------------------------------------------------------------

// Reads the scope table of a method as __C_specific_handler has it, behind the unwind information. The table is a
// count, and for each scope the RVAs of begin, end, handler and target. RVAs count from `base`. A __try/__except has a
// filter, or 1 for every exception, and goes on at the target. A __try/__finally has a funclet.
//
// Filters and funclets are called as described below, not as on Windows. Errors, with an offset in the table as
// `where`: kTruncated; kMalformed for a scope or target outside of the method. Linear.
[[nodiscard]] Expected<std::vector<Clause>> read_scope_table(std::span<const std::byte> table, std::uint64_t base,
                                                             const Method& method);

// A funclet is called as uint64_t f(base, object). `base` is Personality::base() of the frame.
//
// - A filter returns 0 or 1.
// - A catch funclet returns the address in the method's code where the method goes on. The method then has the
//   registers that the funclet had.
// - The result of finally and fault funclets is ignored.

// ---- the runtime's part -------------------------------------------------------------------------------------------

// Bytes of stack that raise() and redirect_fault() need below the throwing frame, for the walks of both passes.
// Funclets and the personality need their own stack besides.
inline constexpr std::size_t kRoomToThrow = std::size_t{64} << 10;

// What to do with an exception that leaves managed code into the native code that called it.
enum class NativePolicy : std::uint8_t {
  kStop,  // Ask no frame further out: the exception is unhandled.
  // Unwind the native frames, and run their destructors (Itanium C++ ABI, "Forced unwinding"). The system's unwinder
  // must know all code in between. For example, stubs are registered by Registry::kFrameInfo.
  kUnwind,
  kFailFast,  // End the process there.
};

// An exception during its dispatch. `object` is a root: read it again after managed code has run.
struct Thrown {
  std::uint64_t object = 0;
  bool rethrown = false;  // A catch funclet throws the exception again.
  bool fault = false;     // Made from a hardware fault.
};

// The defaults of Personality::failed() and Personality::make_room(): a line on stderr. print_lack_of_room() is
// signal-safe.
void print_failure(const Error& why);
void print_lack_of_room();

// The runtime's decisions about exceptions.
class Personality {
 public:
  virtual ~Personality() = default;
  // True if a kCatch clause catches the exception. Called in the first pass; managed code may run.
  [[nodiscard]] virtual bool catches(const CrawlFrame& frame, const Clause& clause, const Thrown& thrown) = 0;
  // Called for each frame that the first pass reaches: for the stack trace that is kept with the object.
  virtual void trace(const CrawlFrame& /*frame*/, const Thrown& /*thrown*/) {}
  // The address by which a frame's funclets find its locals. Without an override: sp, as Windows' establisher frame.
  [[nodiscard]] virtual std::uint64_t base(const CrawlFrame& frame) const { return frame.registers.sp(); }
  // What to do where native code called managed code. `frame` is the explicit frame of this call, a marker.
  [[nodiscard]] virtual NativePolicy at_native(const CrawlFrame& /*frame*/, const Thrown& /*thrown*/) {
    return NativePolicy::kStop;
  }
  // Called for an unhandled exception, before anything is unwound: first notify_debugger(), then unhandled(). If both
  // return, the process ends (abort).
  virtual void notify_debugger(const Thrown& /*thrown*/) {}
  virtual void unhandled(const Thrown& /*thrown*/) {}
  // Called when an exception cannot go on. The process ends (abort) when this returns. Error::text() names the broken
  // rule. Without an override: written to stderr.
  //
  // - With kUnwind: the system's unwinder (libgcc) does not know the code of a native frame. `where` is its pc.
  // - The stack cannot be walked.
  // - The policy is kFailFast.
  virtual void failed(const Error& why, const Thrown& /*thrown*/) { print_failure(why); }
  // Called in a signal handler when managed code faults with less than kRoomToThrow of stack below `sp`. Very likely
  // the stack has run out.
  //
  // Return true if there is room now: for example, a reserved part of the stack has been made accessible. The runtime
  // takes that back when the exception has been caught. If this returns false, redirect_fault() does too. Without an
  // override: false, and a line on stderr.
  virtual bool make_room(std::uint64_t /*sp*/) {
    print_lack_of_room();
    return false;
  }
  // The object for a hardware fault. 0: none, the signal belongs to other code.
  [[nodiscard]] virtual std::uint64_t object_of_fault(int /*signal*/, std::uint64_t /*address*/) { return 0; }
};

// A thread that can throw. `walk` is kept up to date while exceptions are dispatched.
struct ThrowingThread {
  ManagedThread walk;  // With own_list.
  Personality* personality = nullptr;
  // For the library alone.
  void* dispatch = nullptr;
  SavedContext fault;
  std::uint64_t fault_object = 0;
};

// ---- throwing -----------------------------------------------------------------------------------------------------

// Throws `object`. Called from native code that managed code called, at any depth.
[[noreturn]] void raise(ThrowingThread& thread, std::uint64_t object);
// Throws the caught exception once more. Called in a catch funclet, or in native code that it called. Outside of a
// catch funclet: as raise(0).
[[noreturn]] void rethrow(ThrowingThread& thread);
// Turns a hardware fault into an exception. Call in a handler with SA_SIGINFO for SIGSEGV, SIGFPE, SIGBUS or SIGILL, on
// any stack. If managed code has faulted, and object_of_fault() gives an object, the thread throws when the handler
// returns.
//
// Returns false if nothing is thrown: the signal belongs to other code, or the stack is exhausted (see
// Personality::make_room()). Signal-safe if the personality is.
bool redirect_fault(ThrowingThread& thread, int signal, const void* siginfo, void* ucontext);

}  // namespace windlass::managed
