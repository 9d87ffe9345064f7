// An Erlang virtual machine that exports nothing to debuggers, as Debian's release 29. Its data are found by the code
// of the functions that it exports to loaded libraries, by the names of its own code, and by what refers to what.
//
// erlang/otp, erts/emulator/beam: erl_driver.h (ErlDrvSysInfo), erl_nif.c (enif_get_atom), beam_ranges.c;
// jit/beam_asm.h.
#pragma once

#include <cstdint>
#include <string>

#include "runtimes/beam/layout.h"
#include "windlass/error.h"
#include "windlass/walk.h"

namespace windlass::runtimes::beam {

// The release, by driver_system_info(). Empty: it is not found.
[[nodiscard]] std::string unexported_release(const Memory& memory, std::uint64_t image);

struct Unexported {
  std::uint64_t scheduler = 0;  // the data of one whose thread runs
  bool has_frame_pointers = false;
};

// Fills in `to`, in which the release's offsets stand, but for what is known by a scheduler. kUnreadable: the virtual
// machine has just begun. kUnsupported: a place is not found, or found twice.
[[nodiscard]] Expected<Unexported> find_unexported(const Memory& memory, std::uint64_t image, Layout& to);

// Is a function the one that a scheduler's thread calls? It asks another one for the place of a pointer to code, and
// goes on there.
[[nodiscard]] bool is_process_main(const Memory& memory, std::uint64_t function);

}  // namespace windlass::runtimes::beam
