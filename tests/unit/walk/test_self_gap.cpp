// The own process with gaps between the program's segments. The linker has put one of its functions far away, and glibc
// reports each segment by itself.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "walk/own/modules.h"
#include "windlass/backtrace.h"

namespace windlass {
namespace {

struct Stack {
  std::vector<FrameOrigin> origins;
  WalkEnd end = WalkEnd::kRunning;
  std::size_t depth = 0;  // of backtrace()
};

[[gnu::noinline]] void walk(Stack& stack) {
  std::uint64_t pcs[64];
  stack.depth = backtrace(pcs, 64);
  StackWalker walker(own_process(), capture_registers());
  while (walker.step()) stack.origins.push_back(walker.frame().origin);
  stack.end = walker.end_reason();
}

[[gnu::noinline]] void near_by(Stack& stack, int depth) {
  if (depth == 0)
    walk(stack);
  else
    near_by(stack, depth - 1);
  asm volatile("");  // no tail call
}

[[gnu::section(".far"), gnu::noinline]] void far_away(Stack& stack) {
  near_by(stack, 3);
  asm volatile("");
}

TEST(Gap, CfiOfEverySegment) {
  Stack stack;
  far_away(stack);
  EXPECT_EQ(stack.end, WalkEnd::kComplete);
  ASSERT_GT(stack.origins.size(), 6u);
  EXPECT_EQ(stack.depth, stack.origins.size() + 1);  // and that of walk()
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(stack.origins[i], FrameOrigin::kCfi) << i;
}

TEST(Gap, OneModule) {
  const AddressSpace space = AddressSpace::self();
  Stack stack;
  far_away(stack);
  std::size_t programs = 0;
  for (const ModuleInfo* module : space.modules()) programs += module->path.ends_with("test_self_gap") ? 1 : 0;
  EXPECT_EQ(programs, 1u);
  const auto here = own_function(reinterpret_cast<std::uint64_t>(&near_by) + 1);
  const auto there = own_function(reinterpret_cast<std::uint64_t>(&far_away) + 1);
  ASSERT_TRUE(here.has_value() && there.has_value());
  EXPECT_GT(there->begin - here->begin, 0x2000000u);
}

// Another object may lie in the gap. What has none is the same wherever it is asked.
TEST(Gap, TheProgramIsAskedForEachTime) {
  const auto address = [](auto* function) { return reinterpret_cast<std::uint64_t>(function); };
  const walk::OwnModule* program = walk::OwnModules::find(address(&near_by));
  ASSERT_NE(program, nullptr);
  EXPECT_FALSE(program->stays_at(address(&far_away) - 0x1000000));
  const walk::OwnModule* library = walk::OwnModules::find(address(&std::atoi));
  ASSERT_NE(library, nullptr);
  ASSERT_NE(library, program);
  EXPECT_TRUE(library->stays_at(address(&std::atoi)));
  EXPECT_FALSE(library->stays_at(address(&near_by)));
}

}  // namespace
}  // namespace windlass
