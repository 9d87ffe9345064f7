#include "profiler/samples/raw_event.h"

#include <bit>
#include <cstddef>
#include <cstring>
#include <iterator>

#include "base/registers.h"
#include "windlass_wine_layout.h"

namespace windlass::profiler {
namespace {

// By wl_machine.
constexpr Architecture kMachines[] = {Architecture::kX86_64, Architecture::kAArch64, Architecture::kI386};
static_assert(WL_MACHINE_X86_64 == 0 && WL_MACHINE_AARCH64 == 1 && WL_MACHINE_I386 == 2);

// Which of x86-64's registers has an i386's in its lower half, eax to edi or eip. i386's DWARF numbers are in the order
// of instructions' encoding.
constexpr unsigned x86_64_place(unsigned i386) {
  return i386 < 8 ? x86_64::dwarf_number(i386) : x86_64::kReturnAddress;
}

// An event has so many registers by DWARF number, then the pc.
Registers registers_of(const wl_raw_event& event, Architecture architecture) {
  Registers registers(architecture);
  const bool narrow = architecture == Architecture::kI386;
  const auto value = [&](unsigned reg) {
    return narrow ? std::uint64_t{static_cast<std::uint32_t>(event.regs[x86_64_place(reg)])} : event.regs[reg];
  };
  const RegisterNumber pc = Registers::pc_number(architecture);
  for (RegisterNumber reg = 0; reg < pc; ++reg) registers.set(reg, value(reg));
  registers.set_pc(CodeAddress::instruction(value(pc)));
  return registers;
}

void take_probed_returns(const wl_raw_event& event, RawSample& sample) {
  sample.probed_pc = event.probed_pc;
  for (std::size_t i = 0; i < WL_PROBED_RETURNS; ++i) {
    const wl_word& word = event.words[WL_PROBED_RETURN + i];
    sample.probed_returns[i] = {word.address, word.value};
  }
}

}  // namespace

bool MemoryCopy::read(std::uint64_t from, void* to, std::size_t size) const {
  constexpr std::uint64_t kPages = WL_MAX_RAW_PAGES;
  static_assert(kPages == 8 * sizeof pages);
  const std::uint64_t begin = address % WL_RAW_PAGE, offset = from - address;
  constexpr std::uint64_t kMost = kPages * WL_RAW_PAGE;
  if (from < address || offset > kMost || size == 0 || size > kMost) return false;
  const std::uint64_t first = (begin + offset) / WL_RAW_PAGE, last = (begin + offset + size - 1) / WL_RAW_PAGE;
  if (last >= kPages) return false;
  const std::uint64_t wanted = (~std::uint64_t{0} >> (kPages - 1 - last)) & (~std::uint64_t{0} << first);
  if ((pages & wanted) != wanted) return false;
  // The first page is in the copy from `begin` on.
  const std::uint64_t below = ~pages & ((std::uint64_t{1} << first) - 1);
  const std::uint64_t left_out =
      static_cast<std::uint64_t>(std::popcount(below)) * WL_RAW_PAGE - ((below & 1) != 0 ? begin : 0);
  const std::uint64_t at = offset - left_out;
  if (at > bytes.size() || size > bytes.size() - at) return false;
  std::memcpy(to, bytes.data() + at, size);
  return true;
}

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
  if (stack_at > size || stacks > size - stack_at || event.interpreted_frames > WL_MAX_RAW_INTERPRETED_FRAMES ||
      event.interpreted_frames * sizeof(wl_interpreted_frame) > size - stack_at - stacks)
    return fail(ErrorCode::kMalformed, "raw event's parts exceed it", stack_at, stacks);
  RawEvent parsed;
  parsed.reason = event.reason;
  parsed.space = event.space;
  parsed.sample.epoch = event.epoch;
  parsed.hash = event.hash;
  parsed.kernel.resize(event.kernel_frames);
  if (!parsed.kernel.empty()) std::memcpy(parsed.kernel.data(), bytes + sizeof event, parsed.kernel.size() * 8);
  parsed.interpreted.resize(event.interpreted_frames);
  if (!parsed.interpreted.empty())
    std::memcpy(parsed.interpreted.data(), bytes + stack_at + stacks,
                parsed.interpreted.size() * sizeof(wl_interpreted_frame));
  RawSample& sample = parsed.sample;
  sample.tgid = head.tgid;
  sample.time = head.time;
  sample.registers = registers_of(event, kMachines[event.machine]);
  const std::byte* const stack = bytes + stack_at;
  sample.stack = {event.stack_address, {stack, event.stack_size}, event.stack_pages};
  sample.second = {event.second_address, {stack + event.stack_size, event.second_size}, event.second_pages};
  if (event.gs_base != 0 && event.machine == WL_MACHINE_X86_64) {
    sample.registers.set(x86_64::kGsBase, event.gs_base);
    sample.teb = {event.gs_base + WL_WINE_TEB_FRAME, std::as_bytes(std::span(&event.teb_frame, 1))};
  }
  if (event.thread_pointer != 0 && event.machine == WL_MACHINE_X86_64)
    sample.registers.set(x86_64::kFsBase, event.thread_pointer);
  const bool by_sp = event.machine == WL_MACHINE_AARCH64;
  if (by_sp) take_probed_returns(event, sample);
  const std::size_t words = by_sp ? std::size_t{WL_PROBED_RETURN} : std::size_t{WL_WORDS};
  for (std::size_t i = 0; i < words; ++i)
    if (event.words[i].address != 0)
      sample.words[i] = {event.words[i].address, std::as_bytes(std::span(&event.words[i].value, 1))};
  sample.code = {sample.registers.pc().value() - event.code_before, {bytes + code_at, event.code_size}};
  return parsed;
}

}  // namespace windlass::profiler
