#include "profiler/samples/perf_sample.h"

#include <asm/perf_regs.h>
#include <linux/perf_event.h>

#include <algorithm>
#include <cstring>

#include "base/registers.h"
#include "windlass/bytes.h"

namespace windlass::profiler {
namespace {

// arch/x86/include/uapi/asm/perf_regs.h: AX BX CX DX SI DI BP SP IP, then (after flags and segments) R8 to R15.
constexpr PerfRegisters kX86{
    .machine = WL_MACHINE_X86_64,
    .mask = 0x1ff | 0xff0000,
    .places = {0, 3, 2, 1, 4, 5, 6, 7, 16, 8, 9, 10, 11, 12, 13, 14, 15},
    .count = 17,
};

// arch/arm64/include/uapi/asm/perf_regs.h: X0 to X29, LR, SP, PC, which is DWARF's order.
constexpr PerfRegisters kArm{
    .machine = WL_MACHINE_AARCH64,
    .mask = 0x1ffffffff,
    .places = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
               17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32},
    .count = 33,
};

#if defined(__x86_64__)
static_assert(PERF_REG_X86_IP == 8 && PERF_REG_X86_R8 == 16 && PERF_REG_X86_BX == 1);
#elif defined(__aarch64__)
static_assert(PERF_REG_ARM64_LR == 30 && PERF_REG_ARM64_SP == 31 && PERF_REG_ARM64_PC == 32);
#endif

std::uint8_t* resize_bytes(std::vector<std::uint64_t>& event, std::size_t bytes) {
  event.assign((bytes + 7) / 8, 0);
  return reinterpret_cast<std::uint8_t*>(event.data());
}

// One frame and no more: AArch32 code has other registers and other rows.
void make_one_frame(const wl_event_head& head, std::uint64_t pc, std::vector<std::uint64_t>& event) {
  auto* to = reinterpret_cast<wl_stack_event*>(resize_bytes(event, sizeof(wl_stack_event) + 8));
  to->head = head;
  to->head.type = WL_EVENT_STACK;
  to->hash = pc;
  to->user_frames = 1;
  to->end = WL_END_NO_ROW;
  const std::uint64_t frame = pc | WL_FRAME_EXACT;
  std::memcpy(to + 1, &frame, sizeof frame);
}

}  // namespace

const PerfRegisters& perf_registers(wl_machine machine) { return machine == WL_MACHINE_AARCH64 ? kArm : kX86; }

// struct { header; u32 pid, tid; u64 time; u64 id; u64 abi; u64 regs[] if abi; u64 size; char data[size], u64 dyn_size
// if size } (perf_event_open(2), PERF_RECORD_SAMPLE)
bool make_raw_event(std::span<const std::byte> record, const PerfRegisters& registers,
                    std::vector<std::uint64_t>& event, std::uint64_t* period) {
  const ByteView view(record.data(), record.size());
  constexpr std::uint64_t kPeriod = 32;
  const std::uint64_t abi_at = period != nullptr ? kPeriod + 8 : kPeriod, registers_at = abi_at + 8;
  const auto abi = view.at<std::uint64_t>(abi_at);
  const std::uint64_t size_at = registers_at + registers.count * std::uint64_t{8};
  const auto size = view.at<std::uint64_t>(size_at);
  if (!abi || !size || (*abi != PERF_SAMPLE_REGS_ABI_32 && *abi != PERF_SAMPLE_REGS_ABI_64)) return false;
  std::uint64_t filled = 0;
  if (*size != 0) {
    if (*size > record.size() - size_at - 8) return false;
    const auto dynamic = view.at<std::uint64_t>(size_at + 8 + *size);
    if (!dynamic || *dynamic > *size) return false;
    filled = *dynamic;
  }
  if (period != nullptr) *period = *view.at<std::uint64_t>(kPeriod);
  wl_event_head head{};
  head.type = WL_EVENT_RAW;
  head.tgid = *view.at<std::uint32_t>(8);
  head.tid = *view.at<std::uint32_t>(12);
  head.time = *view.at<std::uint64_t>(16);
  std::uint64_t values[WL_RAW_REGISTERS] = {};
  for (unsigned i = 0; i < registers.count; ++i)
    values[registers.places[i]] = *view.at<std::uint64_t>(registers_at + i * std::uint64_t{8});
  const bool narrow = *abi == PERF_SAMPLE_REGS_ABI_32;
  if (narrow && registers.machine != WL_MACHINE_X86_64) {
    make_one_frame(head, values[registers.count - 1], event);
    return true;
  }
  std::uint8_t* bytes = resize_bytes(event, sizeof(wl_raw_event) + filled);
  auto* raw = reinterpret_cast<wl_raw_event*>(bytes);
  raw->head = head;
  std::copy(std::begin(values), std::end(values), raw->regs);
  raw->reason = WL_END_NO_PROCESS;  // nobody has tried before
  raw->stack_size = static_cast<std::uint32_t>(filled);
  raw->stack_address = values[registers.machine == WL_MACHINE_AARCH64 ? aarch64::kSp : x86_64::kRsp];
  raw->stack_pages = ~std::uint64_t{0};  // it ends at the first page that cannot be read
  raw->machine = narrow ? WL_MACHINE_I386 : registers.machine;
  std::memcpy(bytes + sizeof(wl_raw_event), record.data() + size_at + 8, filled);
  return true;
}

}  // namespace windlass::profiler
