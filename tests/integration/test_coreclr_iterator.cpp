// The walk of managed stacks on the threads of a real CoreCLR, from outside: its frame list, its methods by their
// Windows unwind information, native frames by CFI. What the runtime prints of the same stack is the oracle.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "integration/coreclr/program.h"
#include "os/process_memory.h"
#include "runtimes/coreclr/find.h"
#include "runtimes/coreclr/names.h"
#include "support/coreclr_walk.h"
#include "support/find_in_images.h"
#include "windlass/target.h"

namespace windlass {
namespace {

using test::CoreClrRuntime;
namespace coreclr = runtimes::coreclr;

const std::string kBottom = "Chains.Bottom.Sleep(Int32)";

class Stack : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string why = test::make_coreclr_program("chains"); !why.empty()) GTEST_SKIP() << why;
    program_.emplace(GetParam(), std::string("iterator-") + GetParam());
  }

  // The managed frames of the thread that has come to the bottom, as the walk shows them; empty: none has yet.
  std::vector<std::string> walked(managed::WalkFlags flags) {
    const os::MemoryFile memory(program_->pid());
    const auto at = test::find_in_images(memory, test::maps_of(program_->pid()), coreclr::find_descriptor);
    const auto descriptor = at ? coreclr::Descriptor::read(memory, *at) : fail(ErrorCode::kNotFound, "not there", 0);
    if (!descriptor) return {};
    const auto map = coreclr::CodeMap::make(*descriptor);
    const auto frames = coreclr::ExplicitFrames::make(*descriptor);
    auto names = coreclr::Names::make(*descriptor);
    if (!map || !frames || !names) return {};
    auto target = open_process(static_cast<std::uint64_t>(program_->pid()));
    if (!target) return {};
    const auto threads = frames->read(memory);
    if (!threads) return {};
    for (const Thread& thread : target->threads) {
      const auto list = std::ranges::find(*threads, thread.id, &coreclr::ThreadFrames::id);
      if (list == threads->end()) continue;
      CoreClrRuntime runtime(target->space.memory(), *map);
      runtime.set_frames(*list);
      const managed::ManagedThread walk{.space = &target->space, .runtime = &runtime, .frames = runtime.first_frame()};
      const bool native = (flags & managed::kNativeFrames) != 0;
      std::vector<std::string> shown;
      managed::ManagedWalker walker(walk, native ? thread.registers : Registers(Architecture::kX86_64),
                                    flags | managed::kFunctionsOnly | managed::kSkipCookieCheck |
                                        managed::kAllowAsyncWalk | managed::kThreadIsSuspended);
      while (walker.next())
        if (walker.frame().frameless()) shown.push_back(names->name_of(memory, walker.frame().function()));
      const auto bottom = std::ranges::find(shown, kBottom);
      if (bottom == shown.end()) continue;
      EXPECT_FALSE(walker.error()) << walker.error()->text();
      return {bottom, shown.end()};
    }
    return {};
  }
  std::vector<std::string> wait_for_bottom(managed::WalkFlags flags) {
    std::vector<std::string> stack;
    while (program_->runs() && (stack = walked(flags)).empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return stack;
  }

  std::optional<test::CoreClrChains> program_;
};

// From the list of frames alone, as a collector walks a thread in native code; and from its registers.
TEST_P(Stack, IsWhatTheRuntimePrints) {
  const std::vector<std::string> from_frames = wait_for_bottom(managed::kDisableMissingFrameDetection);
  ASSERT_FALSE(from_frames.empty());
  const std::vector<std::string> from_registers = walked(managed::kNativeFrames);
  const std::vector<std::string> expected = program_->printed_stack();
  ASSERT_GT(expected.size(), 8U);
  EXPECT_EQ(from_frames, expected);
  EXPECT_EQ(from_registers, expected);
}
INSTANTIATE_TEST_SUITE_P(Chains, Stack, testing::Values("plain", "value", "finally"),
                         [](const auto& what) { return std::string(what.param); });

}  // namespace
}  // namespace windlass
