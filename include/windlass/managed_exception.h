// Two-pass exceptions in managed code. The first pass looks for who handles it, from the throwing frame outwards, and
// asks filters; nothing has been unwound then. The second pass runs what has to be cleaned up and at last the handler.
// Handlers, filters and cleanups are funclets, functions of their own that work on the frame of the method they belong
// to. Exception tables are scope tables as __C_specific_handler's (Microsoft, "x64 exception handling"); what a clause
// catches, how a trace is kept and what happens at native code is the runtime's: the personality.
//
//   [[noreturn]] void throw_object(Object* object) { raise(thread, reinterpret_cast<std::uint64_t>(object)); }
//
// Neither signal-safe nor cheap in stack; no lock is taken, and no memory but where native code is unwound. x86-64 and
// AArch64, Linux. A thread with a shadow stack (CET) cannot throw: the process ends, and says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "windlass/managed_walk.h"

namespace windlass::managed {

// ---- exception tables ---------------------------------------------------------------------------------------------

enum class ClauseKind : std::uint8_t { kCatch, kFilter, kFinally, kFault };

// Of a method, the inner ones before those around them. Of clauses with the same range the first that catches is taken.
struct Clause {
  ClauseKind kind = ClauseKind::kCatch;
  std::uint32_t begin = 0;  // what it protects: offsets in the method's code
  std::uint32_t end = 0;
  std::uint64_t handler = 0;  // address of the funclet that handles or cleans up
  std::uint64_t filter = 0;   // kFilter: address of the one that is asked, or kAlways
  std::uint64_t user = 0;     // the runtime's: the type that is caught
  std::uint64_t resume = 0;   // without a handler: where the method itself handles it, the object in rax or x0
  static constexpr std::uint64_t kAlways = 1;
};

// The scope table of a method as __C_specific_handler has it, behind the unwind information: a count and, for each
// scope, begin, end, handler and target, RVAs from `base`. A __try/__except has a filter, or 1 for every exception, and
// goes on at the target; a __try/__finally has a funclet. Filters and funclets are called as below, not as Windows
// does. Errors, `where` an offset in the table: kTruncated; kMalformed for a scope or target outside of the method.
[[nodiscard]] Expected<std::vector<Clause>> read_scope_table(std::span<const std::byte> table, std::uint64_t base,
                                                             const Method& method);

// A funclet is called as uint64_t f(base, object), `base` being Personality::base() of the frame. A filter returns 0 or
// 1; a catch the address in the method's code at which it goes on, with the registers that it had; of finally and fault
// funclets what they return is not looked at.

// ---- the runtime's part -------------------------------------------------------------------------------------------

// Stack that raise() and redirect_fault() need below the frame that throws, for the walks of both passes; funclets and
// the personality need theirs beside it.
inline constexpr std::size_t kRoomToThrow = std::size_t{64} << 10;

// What becomes of an exception where native code called the managed code that it leaves.
enum class NativePolicy : std::uint8_t {
  kStop,      // nobody further out is asked: it is unhandled
  kUnwind,    // it goes through, and the native frames' destructors run (Itanium C++ ABI, "Forced unwinding"). All
              // code between has to be known to the system's unwinder, stubs by Registry::kFrameInfo
  kFailFast,  // the process ends there
};

// One exception while it is looked for and dispatched. `object` is a root: read it again after managed code ran.
struct Thrown {
  std::uint64_t object = 0;
  bool rethrown = false;  // a catch throws what it has caught
  bool fault = false;     // made of a hardware fault
};

// What a personality without an override writes to stderr; the second is signal-safe.
void print_failure(const Error& why);
void print_lack_of_room();

class Personality {
 public:
  virtual ~Personality() = default;
  // Does a kCatch clause catch it? In the first pass; managed code may run.
  [[nodiscard]] virtual bool catches(const CrawlFrame& frame, const Clause& clause, const Thrown& thrown) = 0;
  // A frame that the first pass has come to: for the stack trace that is kept with the object.
  virtual void trace(const CrawlFrame& /*frame*/, const Thrown& /*thrown*/) {}
  // What funclets of a frame find its locals by; without an override sp, as Windows' establisher frame is.
  [[nodiscard]] virtual std::uint64_t base(const CrawlFrame& frame) const { return frame.registers.sp(); }
  // `frame` is the explicit frame, a marker, by which native code called managed code.
  [[nodiscard]] virtual NativePolicy at_native(const CrawlFrame& /*frame*/, const Thrown& /*thrown*/) {
    return NativePolicy::kStop;
  }
  // Nobody handles it, and nothing has been unwound: first a debugger's notification, then the process's own handler.
  // The process ends (abort) if they return.
  virtual void notify_debugger(const Thrown& /*thrown*/) {}
  virtual void unhandled(const Thrown& /*thrown*/) {}
  // The exception cannot go on, and the process ends (abort) when this returns. Error::text() names the rule: a native
  // frame that kUnwind cannot unwind, as the system's unwinder (libgcc) does not know its code (`where`: its pc); a
  // stack that cannot be walked; kFailFast. Without an override: it is written to stderr.
  virtual void failed(const Error& why, const Thrown& /*thrown*/) { print_failure(why); }
  // In a signal handler: managed code has faulted where less than kRoomToThrow of its stack is left below `sp`; very
  // likely it has run out of it. True: there is room now (a part of the stack that was kept for this has been made
  // accessible, and it is the runtime's to take that back when the exception has been caught). False:
  // redirect_fault() is, too. Without an override: false, and the rule is written to stderr.
  virtual bool make_room(std::uint64_t /*sp*/) {
    print_lack_of_room();
    return false;
  }
  // What a hardware fault becomes: an object; 0: none, the signal is nobody's here.
  [[nodiscard]] virtual std::uint64_t object_of_fault(int /*signal*/, std::uint64_t /*address*/) { return 0; }
};

// A thread that throws: what walks of it need, and is kept true while exceptions are dispatched.
struct ThrowingThread {
  ManagedThread walk;  // with own_list
  Personality* personality = nullptr;
  // Internal.
  void* dispatch = nullptr;
  SavedContext fault;
  std::uint64_t fault_object = 0;
};

// ---- throwing -----------------------------------------------------------------------------------------------------

// From native code that managed code called, or deeper.
[[noreturn]] void raise(ThrowingThread& thread, std::uint64_t object);
// In a catch funclet, or in native code that it called: what it has caught, once more. Without one: as raise(0).
[[noreturn]] void rethrow(ThrowingThread& thread);
// In a signal handler with SA_SIGINFO (of SIGSEGV, SIGFPE, SIGBUS, SIGILL), on any stack: if the thread faulted in
// managed code and object_of_fault() says what that is, it throws when the handler returns. False: it did not; the
// signal is somebody else's, or the stack is exhausted (Personality::make_room()). Signal-safe if the personality is.
bool redirect_fault(ThrowingThread& thread, int signal, const void* siginfo, void* ucontext);

}  // namespace windlass::managed
