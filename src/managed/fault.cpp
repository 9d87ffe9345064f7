// Hardware faults as exceptions.
#include <sys/resource.h>
#include <ucontext.h>
#include <unistd.h>

#include <csignal>
#include <string_view>

#include "managed/dispatch.h"
#include "managed/install.h"
#include "walk/own/memory.h"

extern "C" __attribute__((weak)) void* __libc_stack_end;

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

// Of the initial stack the system makes what is used, as far as its limit.
bool is_made_when_used(std::uint64_t from, std::uint64_t sp) {
  constexpr std::uint64_t kInitialStack = std::uint64_t{128} << 20;
  if (&__libc_stack_end == nullptr) return false;
  const auto top = reinterpret_cast<std::uint64_t>(__libc_stack_end);
  rlimit limit{};
  return sp < top && top - sp < kInitialStack && getrlimit(RLIMIT_STACK, &limit) == 0 && top - from < limit.rlim_cur;
}

bool has_room(std::uint64_t sp) {
  const std::uint64_t from = sp - kRoomToThrow;
  return walk::readable(from, kRoomToThrow) || is_made_when_used(from, sp);
}

}  // namespace

void print_lack_of_room() {
  constexpr std::string_view kRule =
      "windlass: managed code has run out of stack: an exception needs 64 KiB below its frame, which "
      "Personality::make_room() gives\n";
  (void)!write(STDERR_FILENO, kRule.data(), kRule.size());
}

bool redirect_fault(ThrowingThread& thread, int signal, const void* siginfo, void* ucontext) {
  const Registers registers = registers_of(ucontext);
  if (thread.walk.runtime->find(registers.pc().value()) == nullptr) return false;
  const auto address = reinterpret_cast<std::uint64_t>(static_cast<const siginfo_t*>(siginfo)->si_addr);
  const std::uint64_t object = thread.personality->object_of_fault(signal, address);
  if (object == 0) return false;
  if (!has_room(registers.sp()) && (!thread.personality->make_room(registers.sp()) || !has_room(registers.sp())))
    return false;
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
