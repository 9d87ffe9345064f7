// Hardware faults as exceptions.
#include <ucontext.h>
#include <csignal>

#include "managed/dispatch.h"
#include "managed/install.h"

namespace windlass::managed {
namespace {

// Runs on the faulting thread's stack, called by nothing.
[[noreturn]] void throw_fault(ThrowingThread* thread) {
  refuse_shadow_stack("throwing a managed exception");
  ContextFrame frame(FrameKind::kFaulting, FrameForm::kContext, kFaulted);
  frame.context = thread->fault;
  thread->walk.own_list->push(frame.header);
  const Registers registers = frame.context.registers(thread->walk.space->architecture());
  Dispatch(*thread, {.object = thread->fault_object, .fault = true}, registers).run();
}

}  // namespace

bool redirect_fault(ThrowingThread& thread, int signal, const void* siginfo, void* ucontext) {
  const Registers registers = registers_of(ucontext);
  if (thread.walk.runtime->find(registers.pc().value()) == nullptr) return false;
  const auto address = reinterpret_cast<std::uint64_t>(static_cast<const siginfo_t*>(siginfo)->si_addr);
  const std::uint64_t object = thread.personality->object_of_fault(signal, address);
  if (object == 0) return false;
  thread.fault.set(registers);
  thread.fault_object = object;
  auto& machine = static_cast<ucontext_t*>(ucontext)->uc_mcontext;
#if defined(__x86_64__)
  constexpr std::uint64_t kRedZone = 128;
  machine.gregs[REG_RDI] = static_cast<greg_t>(reinterpret_cast<std::uint64_t>(&thread));
  machine.gregs[REG_RIP] = static_cast<greg_t>(reinterpret_cast<std::uint64_t>(&throw_fault));
  machine.gregs[REG_RSP] = static_cast<greg_t>(((registers.sp() - kRedZone) & ~std::uint64_t{15}) - 8);
#else
  machine.regs[0] = reinterpret_cast<std::uint64_t>(&thread);
  machine.regs[30] = 0;
  machine.pc = reinterpret_cast<std::uint64_t>(&throw_fault);
  machine.sp = registers.sp() & ~std::uint64_t{15};
#endif
  return true;
}

}  // namespace windlass::managed
