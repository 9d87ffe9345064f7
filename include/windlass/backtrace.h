// Walking the own process: the calling thread's stack, from anywhere, signal handlers included.
//
//   std::uint64_t pcs[256];
//   std::size_t depth = windlass::backtrace(pcs, 256);
//
//   for (const Frame& frame : StackWalker(own_process(), capture_registers())) use(frame);   // every register
//
// Nothing here allocates, locks or makes a system call once the modules on the stack have been seen by a first walk;
// all of it, the first walk too, may be called in a signal handler and from any number of threads. Modules come and go
// by dlopen and dlclose without notice to anybody.
#pragma once

#include <cstddef>
#include <cstdint>

#include "windlass/error.h"
#include "windlass/registers.h"
#include "windlass/walk.h"

namespace windlass {

#if defined(__x86_64__)
inline constexpr Architecture kOwnArchitecture = Architecture::kX86_64;
#elif defined(__aarch64__)
inline constexpr Architecture kOwnArchitecture = Architecture::kAArch64;
#else
#error "Windlass walks x86-64 and AArch64"
#endif

// ---- pcs only: the fast way --------------------------------------------------------------------------------------

// The calling thread's stack, innermost first: pcs[0] is the return address of this call, in the caller. `skip` leaves
// out that many frames. Returns how many of `max` were written. What is written are addresses as they are on the stack,
// so return addresses, but for the frame below a signal handler's trampoline, whose pc was interrupted. Looked up
// symbols want pc - 1 for the former.
std::size_t backtrace(std::uint64_t* pcs, std::size_t max, unsigned skip = 0);

// From given registers (of a signal's ucontext, a switched-out coroutine of this thread): pcs[0] is their pc. `end`
// says why the walk ended. Takes 15 KiB of stack within a C++ exception, a StackWalker 9 KiB (x86-64, test_self_stack),
// and both up to 40 KiB where much code has to be followed: a signal stack of 64 KiB holds that and the frame of a
// processor with AMX.
std::size_t backtrace_from(const Registers& registers, std::uint64_t* pcs, std::size_t max, WalkEnd* end = nullptr);

// The registers that a signal handler with SA_SIGINFO gets as its third argument, or that getcontext filled. Its pc is
// an instruction.
[[nodiscard]] Registers registers_of(const void* ucontext);

// ---- all registers: the exact way --------------------------------------------------------------------------------

// The own process as an address space for StackWalker, always up to date. One for the whole process, never destroyed.
// A StackWalker on it is signal-safe. ModuleInfo::path is empty for modules that a walk saw before
// AddressSpace::self() or prepare() did.
[[nodiscard]] const AddressSpace& own_process();

// Stores the registers that calls preserve, the stack pointer and the pc, as they are just after it has returned:
// [0-30 x0-x30 or 0-15 general registers, then as Registers numbers its slots]. For capture_registers.
extern "C" void windlass_capture(std::uint64_t* slots);

// The calling function's registers, at a point within it.
[[nodiscard]] Registers registers_from_capture(const std::uint64_t* slots);
[[nodiscard]] [[gnu::always_inline]] inline Registers capture_registers() {
  std::uint64_t slots[Registers::kSlots];
  windlass_capture(slots);
  return registers_from_capture(slots);
}

// ---- functions ---------------------------------------------------------------------------------------------------

// What the unwind information of the own process says about the function that contains an address.
struct OwnFunction {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;          // one past the last byte
  std::uint64_t lsda = 0;         // language specific data: exception tables; 0 without
  std::uint64_t personality = 0;  // the routine that understands them; 0 without
  std::uint64_t fde = 0;          // address of the record in .eh_frame
  std::uint64_t text_base = 0;    // what DW_EH_PE_textrel and datarel in the LSDA count from
  std::uint64_t data_base = 0;
  bool signal_frame = false;
};

// Of the function around `pc` (for a return address give pc - 1). kNotFound where no unwind information covers it.
// Signal-safe, logarithmic.
[[nodiscard]] Expected<OwnFunction> own_function(std::uint64_t pc);

// ---- preparing ---------------------------------------------------------------------------------------------------

// Compiles the unwind information of all modules loaded now into dense tables (see the profiler), so that pcs met for
// the first time cost a look-up instead of an evaluation of CFI, and makes what walks (and those of the calling thread)
// write to as large as it gets, 64 and 40 KiB, before they need it. Worth it for long-running programs that walk often
// from many places; takes about 3 bytes a row and up to a second for the largest programs. Allocates and locks: not for
// signal handlers. Thread-safe. Modules loaded later work as without it, or call it again.
void prepare();

}  // namespace windlass
