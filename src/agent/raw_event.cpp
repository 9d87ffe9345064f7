#include "agent/raw_event.h"

#include <cstddef>
#include <cstring>
#include <iterator>

namespace windlass::agent {
namespace {

// The registers of an event, by wl_machine: so many by DWARF number, then the pc.
struct RawMachine {
  Architecture architecture;
  unsigned registers;
};
constexpr RawMachine kMachines[] = {{Architecture::kX86_64, 16}, {Architecture::kAArch64, 32}};
static_assert(WL_MACHINE_X86_64 == 0 && WL_MACHINE_AARCH64 == 1);

Registers registers_of(const wl_raw_event& event, const RawMachine& machine) {
  Registers registers(machine.architecture);
  for (unsigned reg = 0; reg < machine.registers; ++reg)
    registers.set(static_cast<RegisterNumber>(reg), event.regs[reg]);
  registers.set_pc(CodeAddress::instruction(event.regs[machine.registers]));
  return registers;
}

}  // namespace

Expected<RawEvent> parse_raw_event(const wl_event_head& head, std::size_t size) {
  if (size < sizeof(wl_raw_event)) return fail(ErrorCode::kTruncated, "raw event too short", 0, size);
  const auto& event = reinterpret_cast<const wl_raw_event&>(head);
  if (event.machine >= std::size(kMachines))
    return fail(ErrorCode::kUnsupported, "raw event of an unknown machine", offsetof(wl_raw_event, machine),
                event.machine);
  const auto* bytes = reinterpret_cast<const std::byte*>(&event);
  const std::size_t code_at = sizeof event + std::size_t{event.kernel_frames} * 8;
  const std::size_t stack_at = code_at + ((std::size_t{event.code_size} + 7) & ~std::size_t{7});
  const std::uint64_t stacks = std::uint64_t{event.stack_size} + event.second_size;
  if (stack_at > size || stacks > size - stack_at)
    return fail(ErrorCode::kMalformed, "raw event's parts exceed it", stack_at, stacks);
  RawEvent parsed;
  parsed.reason = event.reason;
  parsed.kernel.resize(event.kernel_frames);
  if (!parsed.kernel.empty()) std::memcpy(parsed.kernel.data(), bytes + sizeof event, parsed.kernel.size() * 8);
  RawSample& sample = parsed.sample;
  sample.tgid = head.tgid;
  sample.registers = registers_of(event, kMachines[event.machine]);
  sample.stack_address = sample.registers.sp();
  sample.stack = {bytes + stack_at, event.stack_size};
  sample.second_address = event.second_address;
  sample.second_stack = {bytes + stack_at + event.stack_size, event.second_size};
  sample.code_address = sample.registers.pc().value() - event.code_before;
  sample.code = {bytes + code_at, event.code_size};
  return parsed;
}

}  // namespace windlass::agent
