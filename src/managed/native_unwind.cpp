// Native frames between managed ones, whose destructors run: libgcc's forced unwinding (Itanium C++ ABI: Exception
// Handling, 1.6.2), begun where managed code would have returned to and ended where there is managed code again.
#include <unwind.h>

#include <cstdlib>

#include "arch/registers.h"
#include "managed/dispatch.h"
#include "managed/install.h"

namespace windlass::managed {

struct Dispatch::Moved {
  ThrowingThread& thread;
  Thrown thrown;
  Target target;
  _Unwind_Exception exception;
};

namespace {

// "windlass"
constexpr _Unwind_Exception_Class kClass = 0x77696e646c617373;

Registers registers_of(_Unwind_Context* context, Architecture architecture) {
  Registers registers(architecture);
  for (RegisterNumber reg = 0; reg < 80; ++reg)
    if (registers.holds(reg) && is_callee_saved(architecture, reg)) registers.set(reg, _Unwind_GetGR(context, reg));
  registers.set_sp(_Unwind_GetCFA(context));
  registers.set_pc(CodeAddress::return_address(_Unwind_GetIP(context)));
  return registers;
}

}  // namespace

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
      go_on(it, registers_of(context, it->thread.walk.space->architecture()));
    if ((actions & _UA_END_OF_STACK) != 0) std::abort();  // the first pass saw managed code behind
    return _URC_NO_REASON;
  };
  _Unwind_ForcedUnwind(&moved->exception, stop, moved);
  std::abort();
}

void Dispatch::go_on(Moved* moved, const Registers& registers) {
  Dispatch dispatch(moved->thread, moved->thrown, registers);
  dispatch.target_ = moved->target;
  delete moved;
  dispatch.unwind();
}

}  // namespace windlass::managed
