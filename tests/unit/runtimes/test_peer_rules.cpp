// Other profilers' rules, rebuilt for comparison, on code written by hand: where they are right, and where they are
// not.
#include <gtest/gtest.h>

#include <string>

#include "support/made_up_memory.h"
#include "support/peer_rules.h"

namespace windlass::test {
namespace {

constexpr std::uint64_t kCode = 0x10000, kStack = 0x10800;

user_regs_struct registers(std::uint64_t pc) {
  user_regs_struct now{};
  now.rip = pc;
  now.rsp = kStack;
  now.rbp = kStack + 0x40;
  return now;
}

// The slot with the return address at the instruction behind the first byte of `code`, from rsp; -1: no epilogue.
std::int64_t epilogue_slot(const std::string& code) {
  MadeUpMemory memory(kCode, 0x1000);
  memory.put_bytes(kCode, code);
  const auto slot = otel_hotspot_epilogue(memory, registers(kCode + 1));
  return slot ? static_cast<std::int64_t>(*slot - kStack) : -1;
}

TEST(PeerRules, HotSpotsEpiloguesAreKnownByTheirBytes) {
  EXPECT_EQ(epilogue_slot("\x90\xc3"), 0);
  EXPECT_EQ(epilogue_slot("\x90\x5d\xc3"), 8);                  // on pop rbp
  EXPECT_EQ(epilogue_slot("\x5d\x3b\x67\x58\x77\x01\xc3"), 0);  // behind it, before the poll
  EXPECT_EQ(epilogue_slot("\xc9\x90\xc3"), 0);                  // behind leave
  EXPECT_EQ(epilogue_slot("\x90\x41\x85\x02\xc3"), 0);          // the poll of older releases
  EXPECT_EQ(epilogue_slot("\x90\x0f\x85\x01\x02\x03\x04\xc3"), 0);
  EXPECT_EQ(epilogue_slot("\x90\x48\x83\xc4\x10\x5d\xc3"), -1);             // before the frame is given back
  EXPECT_EQ(epilogue_slot("\x5d" + std::string(13, '\x90') + "\xc3"), -1);  // ret is too far
  EXPECT_EQ(epilogue_slot("\x5d\x3b\x67\x58\x0f\x87\x01\x02\x03\x04\xc3"), 0);
  EXPECT_EQ(epilogue_slot("\x58\x3b\x67\x58\x0f\x87\x01\x02\x03\x04\xc3"), -1);  // behind another pop
}

TEST(PeerRules, ErlangsTopWordIsLeftOut) {
  using Layout = runtimes::beam::Layout;
  MadeUpMemory memory(kCode, 0x1000);
  Layout layout;
  layout.code_index = kCode + 0x700;
  layout.ranges = kCode + 0x710;
  const std::uint64_t modules = kCode + 0x740;
  memory.put(layout.ranges, modules);
  memory.put(layout.ranges + Layout::kRangesCount, std::uint64_t{1});
  memory.put(modules, std::uint64_t{kCode});
  memory.put(modules + 8, std::uint64_t{kCode + 0x400});
  const runtimes::beam::CodeMap map(layout);
  memory.put(kStack, std::uint64_t{kCode + 0x104});  // of a function that has just been called
  memory.put(kStack + 8, std::uint64_t{0xb});        // a term
  memory.put(kStack + 16, std::uint64_t{kCode + 0x208});
  EXPECT_EQ(otel_beam(memory, map, registers(kCode + 0x10)), kCode + 0x208);
  EXPECT_FALSE(otel_beam(memory, map, registers(kCode + 0x600)));  // in no module
  for (std::uint64_t word = 2; word <= 20; ++word) memory.put(kStack + 8 * word, std::uint64_t{0xb});
  EXPECT_FALSE(otel_beam(memory, map, registers(kCode + 0x10)));
}

TEST(PeerRules, FramesHaveALongestLength) {
  user_regs_struct now = registers(kCode);
  EXPECT_TRUE(otel_has_frame(now, 0x41));
  EXPECT_FALSE(otel_has_frame(now, 0x40));
  now.rbp = now.rsp - 8;
  EXPECT_FALSE(otel_has_frame(now, 0x1000));
}

}  // namespace
}  // namespace windlass::test
