// Places of the data that is read of an Erlang virtual machine (BEAM with its JIT compiler, BeamAsm). Addresses come
// from exported symbols, and from the code of exported functions. The virtual machine tells its release to debuggers
// (`etp_otp_release`, erts/etc/unix/etp-commands). Where fields differ between releases, a table has their offsets.
//
// erlang/otp, erts/emulator/beam: beam_ranges.c, beam_code.h, code_ix.h, atom.h, index.h, erl_process.h;
// jit/x86/process_main.cpp.
#pragma once

#include <cstdint>

#include "windlass/error.h"
#include "windlass/walk.h"

namespace windlass::runtimes::beam {

struct Layout {
  std::uint64_t code_index = 0;    // the_active_code_index
  std::uint64_t ranges = 0;        // of modules' code, one of each code index
  std::uint64_t atoms = 0;         // erts_atom_table
  std::uint64_t normal_exit = 0;   // where an Erlang process's outermost function returns to
  std::uint64_t process_main = 0;  // which a scheduler's thread calls, and never comes back from

  // Of a scheduler: the return address of process_main(), which never returns, and its distance on the stack from the
  // structure of the scheduler's registers. Other schedulers have it within a cache line of that distance. 0: no
  // scheduler has begun.
  std::uint64_t scheduler_return = 0;
  std::uint32_t scheduler_distance = 0;
  // From a scheduler's thread's control block to the word that leads to its ErtsSchedulerData (thread-specific data).
  std::uint32_t thread_scheduler = 0;

  std::uint32_t functions = 0;    // in a module's header, BeamCodeHeader
  std::uint32_t process_end = 0;  // Process: hend
  bool has_name_terms = false;    // an atom's name is a term, of bits on the heap

  // Of all releases that are known:
  static constexpr std::uint32_t kRangesSize = 32, kRangesCount = 8;  // struct ranges
  static constexpr std::uint32_t kInfoModule = 0x10, kInfoFunction = 0x18, kInfoArity = 0x20, kInfoSize = 0x28;
  static constexpr std::uint32_t kAtomCount = 0x74, kAtomPages = 0x78;              // IndexTable
  static constexpr std::uint32_t kAtomLength = 0x18, kAtomName = 0x20;              // Atom
  static constexpr std::uint32_t kSchedulerRegisters = 0, kSchedulerThread = 0x20;  // ErtsSchedulerData
  static constexpr std::uint32_t kSchedulerProcess = 0xa8;  // ErtsSchedulerData::current_process
  static constexpr std::uint32_t kProcessStop = 0x58;       // Process: stop

  // The layout of the image at an address. kUnreadable: the virtual machine has just begun. kUnsupported: another
  // release or machine, no JIT compiler, or a needed symbol is not exported.
  [[nodiscard]] static Expected<Layout> read(const Memory& memory, std::uint64_t image);
};

}  // namespace windlass::runtimes::beam
