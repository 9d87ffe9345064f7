// A perf event's sample of user registers and stack (PERF_RECORD_SAMPLE), made a raw event.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "windlass_event_layout.h"
#include "windlass_types.h"

namespace windlass::profiler {

// Which registers to ask for, and where each goes: perf numbers them in its own order (asm/perf_regs.h), events by
// DWARF number with the pc last.
struct PerfRegisters {
  wl_machine machine;
  std::uint64_t mask;                                 // perf_event_attr.sample_regs_user
  std::array<std::uint8_t, WL_RAW_REGISTERS> places;  // of each in the record, by ascending bit
  std::uint8_t count;
};
[[nodiscard]] const PerfRegisters& perf_registers(wl_machine machine);
[[nodiscard]] constexpr wl_machine own_machine() {
#if defined(__aarch64__)
  return WL_MACHINE_AARCH64;
#else
  return WL_MACHINE_X86_64;
#endif
}

// Parses a record of an event with sample_type TID | TIME | ID | REGS_USER | STACK_USER and appends nothing else:
// `event` becomes a wl_raw_event with its stack, or a wl_stack_event of one frame for AArch32 code, which is not
// unwound. False: the bytes contradict themselves, or there is no user side to the sample. `period`: where it goes, of
// an event with PERF_SAMPLE_PERIOD, too.
[[nodiscard]] bool make_raw_event(std::span<const std::byte> record, const PerfRegisters& registers,
                                  std::vector<std::uint64_t>& event, std::uint64_t* period = nullptr);

}  // namespace windlass::profiler
