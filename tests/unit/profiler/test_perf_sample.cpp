// Records as perf_event_open(2) lays them out, made raw events.
#include "profiler/samples/perf_sample.h"

#include <gtest/gtest.h>
#include <linux/perf_event.h>

#include <bit>
#include <cstring>

#include "profiler/samples/raw_unwinder.h"

namespace windlass::profiler {
namespace {

constexpr std::uint64_t kFirstRegister = 1000;

struct RecordOptions {
  std::uint64_t abi = PERF_SAMPLE_REGS_ABI_64;
  std::uint64_t size = 64;    // of the stack's field
  std::uint64_t filled = 48;  // what of it is valid
  std::uint64_t period = 0;   // 0: the record has none
};

// Register i of the record holds 1000 + i, stack byte i holds i.
std::vector<std::byte> record(const PerfRegisters& registers, const RecordOptions& options = {}) {
  std::vector<std::uint64_t> words{0, 0x2200000011ull, 77, 5};
  if (options.period != 0) words.push_back(options.period);
  words.push_back(options.abi);
  if (options.abi != PERF_SAMPLE_REGS_ABI_NONE)
    for (unsigned i = 0; i < registers.count; ++i) words.push_back(kFirstRegister + i);
  words.push_back(options.size);
  if (options.size != 0) {
    for (std::uint64_t i = 0; i < options.size; i += 8) words.push_back(0x0706050403020100 + i * 0x0101010101010101);
    words.push_back(options.filled);
  }
  perf_event_header header{PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER, static_cast<__u16>(words.size() * 8)};
  std::memcpy(words.data(), &header, sizeof header);
  std::vector<std::byte> bytes(words.size() * 8);
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

class PerfSample : public testing::TestWithParam<wl_machine> {
 protected:
  const PerfRegisters& registers_ = perf_registers(GetParam());
  std::vector<std::uint64_t> event_;
};

TEST_P(PerfSample, BecomesARawEvent) {
  ASSERT_TRUE(make_raw_event(record(registers_), registers_, event_));
  const auto& raw = *reinterpret_cast<const wl_raw_event*>(event_.data());
  EXPECT_EQ(raw.head.type, std::uint32_t{WL_EVENT_RAW});
  EXPECT_EQ(raw.head.tgid, 0x11u);
  EXPECT_EQ(raw.head.tid, 0x22u);
  EXPECT_EQ(raw.head.time, 77u);
  EXPECT_EQ(raw.machine, std::uint32_t{GetParam()});
  EXPECT_EQ(raw.stack_size, 48u) << "what was copied, not the room for it";
  EXPECT_EQ(raw.kernel_frames + raw.code_size + raw.second_size, 0u);
  const auto* stack = reinterpret_cast<const std::uint8_t*>(&raw + 1);
  for (unsigned i = 0; i < 48; ++i) EXPECT_EQ(stack[i], i);
}

TEST_P(PerfSample, MayHaveAPeriod) {
  std::uint64_t period = 0;
  const std::vector<std::byte> whole = record(registers_, {.period = 37});
  ASSERT_TRUE(make_raw_event(whole, registers_, event_, &period));
  EXPECT_EQ(period, 37u);
  std::vector<std::uint64_t> without;
  ASSERT_TRUE(make_raw_event(record(registers_), registers_, without));
  EXPECT_EQ(event_, without);
  for (std::size_t size = 0; size < whole.size(); size += 8)
    EXPECT_FALSE(make_raw_event({whole.data(), size}, registers_, event_, &period)) << size;
}

TEST_P(PerfSample, EveryRegisterGoesToOnePlace) {
  EXPECT_EQ(static_cast<int>(registers_.count), std::popcount(registers_.mask));
  ASSERT_TRUE(make_raw_event(record(registers_), registers_, event_));
  const auto& raw = *reinterpret_cast<const wl_raw_event*>(event_.data());
  std::vector<bool> seen(registers_.count);
  for (unsigned place = 0; place < registers_.count; ++place) {
    ASSERT_GE(raw.regs[place], kFirstRegister);
    ASSERT_LT(raw.regs[place], kFirstRegister + registers_.count);
    EXPECT_FALSE(seen[raw.regs[place] - kFirstRegister]) << place;
    seen[raw.regs[place] - kFirstRegister] = true;
  }
}

TEST_P(PerfSample, RegistersByDwarfNumber) {
  ASSERT_TRUE(make_raw_event(record(registers_), registers_, event_));
  const auto* regs = reinterpret_cast<const wl_raw_event*>(event_.data())->regs;
  if (GetParam() == WL_MACHINE_X86_64) {
    EXPECT_EQ(regs[0], kFirstRegister + 0);   // rax
    EXPECT_EQ(regs[1], kFirstRegister + 3);   // rdx
    EXPECT_EQ(regs[3], kFirstRegister + 1);   // rbx
    EXPECT_EQ(regs[7], kFirstRegister + 7);   // rsp
    EXPECT_EQ(regs[8], kFirstRegister + 9);   // r8, after the pc in perf's order
    EXPECT_EQ(regs[16], kFirstRegister + 8);  // pc
  } else {
    for (unsigned i = 0; i < 33; ++i) EXPECT_EQ(regs[i], kFirstRegister + i);
  }
}

// Of i386 everything is there; of AArch32 the frame at hand.
TEST_P(PerfSample, CodeOf32Bits) {
  ASSERT_TRUE(make_raw_event(record(registers_, {.abi = PERF_SAMPLE_REGS_ABI_32}), registers_, event_));
  if (GetParam() == WL_MACHINE_X86_64) {
    const auto& raw = *reinterpret_cast<const wl_raw_event*>(event_.data());
    EXPECT_EQ(raw.head.type, std::uint32_t{WL_EVENT_RAW});
    EXPECT_EQ(raw.machine, std::uint32_t{WL_MACHINE_I386});
    EXPECT_EQ(raw.stack_size, 48u);
    return;
  }
  const auto& stack = *reinterpret_cast<const wl_stack_event*>(event_.data());
  EXPECT_EQ(stack.head.type, std::uint32_t{WL_EVENT_STACK});
  EXPECT_EQ(stack.end, WL_END_NO_ROW);
  EXPECT_EQ(stack.user_frames, 1u);
  EXPECT_GE(event_.size() * 8, sizeof(wl_stack_event) + 8);
}

TEST_P(PerfSample, WithoutAStack) {
  ASSERT_TRUE(make_raw_event(record(registers_, {.size = 0}), registers_, event_));
  EXPECT_EQ(reinterpret_cast<const wl_raw_event*>(event_.data())->stack_size, 0u);
}

TEST_P(PerfSample, BytesThatContradictThemselves) {
  EXPECT_FALSE(make_raw_event(record(registers_, {.abi = PERF_SAMPLE_REGS_ABI_NONE}), registers_, event_));
  EXPECT_FALSE(make_raw_event(record(registers_, {.abi = 7}), registers_, event_));
  EXPECT_FALSE(make_raw_event(record(registers_, {.size = 64, .filled = 65}), registers_, event_));
  const std::vector<std::byte> whole = record(registers_);
  for (std::size_t size = 8; size < whole.size(); ++size)
    EXPECT_FALSE(make_raw_event({whole.data(), size}, registers_, event_)) << size;
}

INSTANTIATE_TEST_SUITE_P(Machines, PerfSample, testing::Values(WL_MACHINE_X86_64, WL_MACHINE_AARCH64));

// What the agent parses the event into again: the seam between the two.
TEST(PerfSampleX86, IsWhatTheRawUnwinderTakes) {
  const PerfRegisters& registers = perf_registers(WL_MACHINE_X86_64);
  std::vector<std::uint64_t> event;
  ASSERT_TRUE(make_raw_event(record(registers), registers, event));
  const auto& head = *reinterpret_cast<const wl_event_head*>(event.data());
  const auto parsed = parse_raw_event(head, event.size() * 8);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->sample.tgid, 0x11u);
  EXPECT_EQ(parsed->sample.registers.pc().value(), kFirstRegister + 8);
  EXPECT_EQ(parsed->sample.stack.address, kFirstRegister + 7);
  ASSERT_EQ(parsed->sample.stack.bytes.size(), 48u);
  EXPECT_EQ(static_cast<int>(parsed->sample.stack.bytes[47]), 47);
}

}  // namespace
}  // namespace windlass::profiler
