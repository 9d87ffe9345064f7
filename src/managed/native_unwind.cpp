// Native frames between managed ones, whose destructors run: libgcc's forced unwinding (Itanium C++ ABI: Exception
// Handling, 1.6.2), begun where managed code would have returned to and ended where there is managed code again.
#include <unwind.h>

#include <cstdlib>

#include "base/registers.h"
#include "managed/dispatch.h"
#include "managed/install.h"

// libgcc's, and LLVM's unwinder has it, too.
struct dwarf_eh_bases {
  void* text;
  void* data;
  void* function;
};
extern "C" __attribute__((weak)) const void* _Unwind_Find_FDE(void* pc, dwarf_eh_bases* bases);

namespace windlass::managed {

struct Dispatch::Moved {
  ThrowingThread& thread;
  Thrown thrown;
  Target target;
  _Unwind_Exception exception;
  std::uint64_t last = 0;  // pc of the native frame that was unwound last
};

namespace {

// The first pass saw managed code behind.
[[noreturn]] void stuck(const ThrowingThread& thread, const Thrown& thrown, std::uint64_t pc) {
  thread.personality->failed(
      {ErrorCode::kNotFound, "the system's unwinder stops in native code that called managed code", pc}, thrown);
  std::abort();
}

// "windlass"
constexpr _Unwind_Exception_Class kClass = 0x77696e646c617373;

Registers registers_at(_Unwind_Context* context, Architecture architecture) {
  Registers registers(architecture);
  for (RegisterNumber reg = 0; reg < 80; ++reg)
    if (registers.holds(reg) && is_callee_saved(architecture, reg)) registers.set(reg, _Unwind_GetGR(context, reg));
  registers.set_sp(_Unwind_GetCFA(context));
  registers.set_pc(CodeAddress::return_address(_Unwind_GetIP(context)));
  return registers;
}

}  // namespace

// Does the system's unwinder know all native code that kUnwind goes through, from `marker` to the next managed code?
// Nothing has been unwound yet.
void Dispatch::check_native(const CrawlFrame& marker) {
  if (cannot_unwind_ || &_Unwind_Find_FDE == nullptr) return;
  StackWalker walker(*thread_.walk.space, marker.registers);
  while (thread_.walk.runtime->find(walker.frame().pc().lookup()) == nullptr) {
    const std::uint64_t pc = walker.frame().pc().lookup();
    dwarf_eh_bases bases;
    if (_Unwind_Find_FDE(reinterpret_cast<void*>(pc), &bases) == nullptr) {
      cannot_unwind_ = Error{ErrorCode::kNotFound,
                             "native code that kUnwind goes through is not known to the system's unwinder: register it "
                             "with Registry::kFrameInfo",
                             pc};
      return;
    }
    if (!walker.step()) {
      cannot_unwind_ = walker.error();
      if (walker.end_reason() == WalkEnd::kComplete)
        cannot_unwind_ = Error{ErrorCode::kNotFound, "no managed code lies behind native code on its stack", pc};
      return;
    }
  }
}

// The exception's stack is about to be used again: what is needed goes to memory of its own. Then it is as if the
// native code had called unwind_native() where it called the managed code.
void Dispatch::leave_through_native(const CrawlFrame& marker) {
  Registers native = marker.registers;
  const std::uint64_t frames = frames_above(marker.frame.address);
  auto* moved = new Moved{.thread = thread_, .thrown = thrown_, .target = target_, .exception = {}};
  walker_.reset();
  const Architecture architecture = native.architecture();
  const std::uint64_t back = native.pc().value();
  if (architecture == Architecture::kX86_64) {
    native.set_sp(native.sp() - sizeof back);
    *reinterpret_cast<std::uint64_t*>(native.sp()) = back;
    native.set(x86_64::kRdi, reinterpret_cast<std::uint64_t>(moved));
  } else {
    native.set(aarch64::kX30, back);
    native.set(0, reinterpret_cast<std::uint64_t>(moved));
  }
  native.set_pc(CodeAddress::instruction(reinterpret_cast<std::uint64_t>(&unwind_native)));
  land(native, record_.previous, older_, frames);
}

void Dispatch::unwind_native(Moved* moved) {
  moved->exception.exception_class = kClass;
  const auto stop = [](int, _Unwind_Action actions, _Unwind_Exception_Class, _Unwind_Exception*,
                       _Unwind_Context* context, void* argument) {
    auto* it = static_cast<Moved*>(argument);
    const std::uint64_t pc = _Unwind_GetIP(context);
    if (it->thread.walk.runtime->find(pc - 1) != nullptr)
      go_on(it, registers_at(context, it->thread.walk.space->architecture()));
    if ((actions & _UA_END_OF_STACK) != 0) stuck(it->thread, it->thrown, pc);
    it->last = pc;
    return _URC_NO_REASON;
  };
  _Unwind_ForcedUnwind(&moved->exception, stop, moved);
  stuck(moved->thread, moved->thrown, moved->last);
}

void Dispatch::go_on(Moved* moved, const Registers& registers) {
  Dispatch dispatch(moved->thread, moved->thrown, registers);
  dispatch.target_ = moved->target;
  delete moved;
  dispatch.unwind();
}

}  // namespace windlass::managed
