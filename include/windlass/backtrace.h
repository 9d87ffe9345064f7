// Walks the calling thread's own stack, from anywhere, signal handlers included.
//
// For example, the code addresses alone:
//
//   std::uint64_t pcs[256];
//   const std::size_t depth = windlass::backtrace(pcs, 256);
//
// Or every register of every frame:
//
//   for (const Frame& frame : StackWalker(own_process(), capture_registers())) use(frame);
//
// The first walk sees the modules on the stack. Later walks over these modules neither allocate, lock nor make a system
// call. Every function except prepare() and AddressSpace::self() may be called in a signal handler, on any number of
// threads. That includes the first walk. Modules may come and go by dlopen and dlclose at any time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "windlass/error.h"
#include "windlass/registers.h"
#include "windlass/walk.h"

namespace windlass {

// The architecture of this build.
#if defined(__x86_64__)
inline constexpr Architecture kOwnArchitecture = Architecture::kX86_64;
#elif defined(__aarch64__)
inline constexpr Architecture kOwnArchitecture = Architecture::kAArch64;
#else
#error "Windlass walks x86-64 and AArch64"
#endif

// ---- pcs only: the fast way --------------------------------------------------------------------------------------

// Writes the calling thread's stack to `pcs`, innermost frame first, and returns the number of addresses written, at
// most `max`. pcs[0] is the return address of this call, in the caller. `skip` frames are left out first.
//
// The addresses are as on the stack. All are return addresses, except the address below a signal handler's trampoline:
// there the pc was interrupted. To look up the symbol of a return address, use pc - 1. Linear in the frames.
// Thread-safe, signal-safe.
std::size_t backtrace(std::uint64_t* pcs, std::size_t max, unsigned skip = 0);

// The same from given registers, for example those of a signal's ucontext, or of a coroutine of this thread that was
// switched out. pcs[0] is their pc. `end` receives the reason why the walk ended.
//
// Stack: 15 KiB within a C++ exception, and 9 KiB for a StackWalker (x86-64, test_self_stack). Both take up to 40 KiB
// if much code must be followed. A signal stack of 64 KiB holds that and the signal frame of a processor with AMX.
std::size_t backtrace_from(const Registers& registers, std::uint64_t* pcs, std::size_t max, WalkEnd* end = nullptr);

// Registers from the third argument of a signal handler with SA_SIGINFO, or from getcontext(). The pc is an
// instruction. Signal-safe.
[[nodiscard]] Registers registers_of(const void* ucontext);

// ---- all registers: the exact way --------------------------------------------------------------------------------

// The own process as an address space, always up to date. One object for the whole process, never destroyed. A
// StackWalker on it is signal-safe. ModuleInfo::path is empty for modules that a walk saw before prepare() or
// AddressSpace::self().
[[nodiscard]] const AddressSpace& own_process();

// Stores the registers that calls preserve, the stack pointer and the pc, as they are just after this call has
// returned. The slots are those of Registers: 0-30 for x0-x30, or 0-15 for general registers, then as there. Use
// capture_registers() instead.
extern "C" void windlass_capture(std::uint64_t* slots);

// The calling function's registers, at a point within the function. Signal-safe.
[[nodiscard]] Registers registers_from_capture(const std::uint64_t* slots);
[[nodiscard]] [[gnu::always_inline]] inline Registers capture_registers() {
  std::uint64_t slots[Registers::kSlots];
  windlass_capture(slots);
  return registers_from_capture(slots);
}

// ---- functions ---------------------------------------------------------------------------------------------------

// The unwind information of the own process for one function.
struct OwnFunction {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;          // The byte behind the last.
  std::uint64_t lsda = 0;         // Language-specific data: exception tables. 0: none.
  std::uint64_t personality = 0;  // The routine that understands `lsda`. 0: none.
  std::uint64_t fde = 0;          // The address of the record in .eh_frame.
  std::uint64_t text_base = 0;    // The bases of DW_EH_PE_textrel and datarel in the LSDA.
  std::uint64_t data_base = 0;
  bool signal_frame = false;  // The caller's pc is an interrupted instruction.
};

// The function that contains `pc`. For a return address pass pc - 1. kNotFound if no unwind information covers `pc`.
// Logarithmic. Signal-safe.
[[nodiscard]] Expected<OwnFunction> own_function(std::uint64_t pc);

// ---- preparing ---------------------------------------------------------------------------------------------------

// Prepares fast walks: compiles the unwind information of all modules loaded now into dense tables. Without tables, a
// pc that is met for the first time costs an evaluation of CFI. With tables it costs a look-up. Also allocates the
// memory that walks write to at full size, 64 and 40 KiB, for the calling thread too. Then takes a walk, so that a
// signal handler's first walk meets no page faults of code.
//
// For long-running programs that walk often from many places. Takes about 3 bytes a row, and up to a second for the
// largest programs. Modules that are loaded later work without tables; call this function again to compile them.
// Thread-safe. Allocates and locks, so not for signal handlers.
void prepare();

}  // namespace windlass
