// Walks beside the trail of the walk before (bpf/windlass_trail.h): whatever has changed on the stack, frames, end and
// sum are those of a walk without a trail.
#include <gtest/gtest.h>

#include <random>

#include "fake_target.h"
#include "lookup/table/builder.h"

namespace windlass {
namespace {

using testing::FakeTarget;
using testing::rule_of;
constexpr std::uint64_t kCode = FakeTarget::kCode, kTop = FakeTarget::kStack + 0x20000;

// What a function does with its frame. Each has a module of its own.
enum Function : unsigned {
  kOutermost,  // has no caller
  kSmall,      // CFA = rsp + 16
  kSaves,      // CFA = rsp + 32, and rbp at CFA - 16 is the caller's
  kFramed,     // CFA = rbp + 16
  kLoads,      // CFA = [rsp]: no plain rule
  kFunctions,
};

struct Frame {
  Function function;
  std::uint64_t offset;  // of the pc, from 1
  unsigned words;        // of a kFramed below its frame record
  std::uint64_t fp;      // of a kSaves
};

class Trail : public ::testing::Test {
 protected:
  Trail() {
    wl_rule outermost = rule_of(WL_CFA_REG, 7, 8);
    outermost.ra_kind = WL_REG_UNDEFINED;
    const wl_rule rules[] = {outermost, rule_of(WL_CFA_REG, 7, 16), rule_of(WL_CFA_REG, 7, 32, WL_REG_CFA, -16),
                             rule_of(WL_CFA_REG, 6, 16, WL_REG_CFA, -16), rule_of(WL_CFA_MEM, 7, 0)};
    std::vector<wl_mapping> mappings;
    for (unsigned function = 0; function < kFunctions; ++function) {
      table::TableBuilder builder;
      builder.begin_function(0, 0x1000);
      builder.row(0, rules[function]);
      builder.end_function();
      target.modules[function] = table::load_table(*builder.finish(), *target.arena)->module;
      const std::uint64_t begin = begin_of(function);
      mappings.push_back({begin, begin + 0x1000, begin, function, WL_MAPPING_FILE});
    }
    target.set_mappings(mappings);
    target.frame_limit = 500;
    target.scratch->event.head.tid = 7;
    stack.push_back({kOutermost, 0x10, 0, 0});
  }

  static std::uint64_t begin_of(unsigned function) { return kCode + function * 0x10000ULL; }
  static std::uint64_t pc_of(const Frame& frame) { return begin_of(frame.function) + frame.offset; }

  Frame random_frame() {
    return {static_cast<Function>(1 + random() % (kFunctions - 1)), 1 + random() % 0xff0, unsigned(random() % 40),
            random()};
  }
  void call(unsigned calls) {
    while (calls-- > 0) stack.push_back(random_frame());
  }

  // Puts the stack into the target's memory. The cursor of its innermost frame, and the frames.
  wl_cursor lay_out(std::vector<std::uint64_t>& frames) {
    std::vector<std::uint64_t> words;  // downwards from kTop
    std::uint64_t fp = 0x1234;
    const auto push = [&](std::uint64_t word) { words.push_back(word); };
    const auto sp = [&] { return kTop - words.size() * 8; };
    push(0x11);
    for (std::size_t i = 1; i < stack.size(); ++i) {
      const std::uint64_t cfa = sp();
      push(pc_of(stack[i - 1]));
      const Function function = stack[i].function;
      if (function == kSaves || function == kFramed) push(fp);
      if (function == kSmall) push(random());
      if (function == kSaves) {
        push(random());
        push(random());
        fp = stack[i].fp;
      }
      if (function == kFramed) {
        fp = sp();
        for (unsigned word = 0; word < stack[i].words; ++word) push(random());
      }
      if (function == kLoads) push(cfa);
    }
    const std::uint64_t innermost = sp();
    std::ranges::reverse(words);
    target.memory.clear();
    target.write(innermost, words);
    frames = {pc_of(stack.back()) | WL_FRAME_EXACT};
    for (std::size_t i = stack.size() - 1; i-- > 0;) frames.push_back(pc_of(stack[i]));
    return FakeTarget::cursor(pc_of(stack.back()), innermost, fp);
  }

  // Walks the stack beside the trail and without one.
  void check() {
    std::vector<std::uint64_t> frames;
    const wl_cursor start = lay_out(frames);
    ASSERT_EQ(target.walk(start), frames);
    ASSERT_EQ(target.scratch->unwind.end, WL_END_COMPLETE);
    const wl_sum sum = target.scratch->unwind.sum;
    followed = target.scratch->trail.followed;
    const wl_trail kept = target.trail;
    target.trail = {};
    ASSERT_EQ(target.walk(start), frames);
    ASSERT_EQ(target.scratch->unwind.sum.value, sum.value);
    ASSERT_EQ(target.scratch->trail.followed, 0U);
    target.trail = kept;
  }

  FakeTarget target;
  std::vector<Frame> stack;  // outermost first
  std::mt19937_64 random{1};
  std::uint32_t followed = 0;
};

TEST_F(Trail, RandomStacksAreWalkedAsWithoutOne) {
  std::uint64_t all = 0, by_trail = 0;
  for (int round = 0; round < 20000; ++round) {
    stack.resize(1 + random() % stack.size());
    call(random() % 12);
    // Somewhere in the middle another call site, or another function with a frame of the same size.
    if (random() % 4 == 0 && stack.size() > 2) {
      Frame& frame = stack[1 + random() % (stack.size() - 1)];
      if (random() % 2 == 0 && (frame.function == kSmall || frame.function == kLoads))
        frame.function = frame.function == kSmall ? kLoads : kSmall;
      else
        frame.offset = 1 + random() % 0xff0;
    }
    check();
    if (HasFatalFailure()) return;
    all += stack.size();
    by_trail += followed;
  }
  EXPECT_GT(by_trail, all / 4);
}

TEST_F(Trail, OnlyWhatIsNewIsLookedUp) {
  call(60);
  check();
  stack.back().offset ^= 1;  // the program has gone on inside a function
  check();
  EXPECT_EQ(followed, stack.size() - 1);
  stack.resize(50);
  call(3);
  check();
  EXPECT_EQ(followed, 50U);
}

// A step that the memo did not know is compared the next time but one.
TEST_F(Trail, LearnsWhichStepsArePlain) {
  for (int i = 0; i < 10; ++i) stack.push_back({kSmall, 0x40, 0, 0});
  std::vector<std::uint64_t> frames;
  const wl_cursor start = lay_out(frames);
  std::vector<std::uint32_t> hits;
  for (int walk = 0; walk < 3; ++walk) {
    EXPECT_EQ(target.walk(start), frames);
    hits.push_back(target.scratch->unwind.memo_hits);
  }
  EXPECT_EQ(target.scratch->trail.followed, 10U);
  EXPECT_EQ(hits.back(), 2U);  // the first frame and the last
}

TEST_F(Trail, DeepStacksKeepTheirInnerFrames) {
  call(400);
  check();
  stack.back().offset ^= 1;
  check();
  EXPECT_EQ(followed, WL_TRAIL_FRAMES);
  call(30);
  check();
  stack.resize(5);
  check();
  call(400);
  check();
}

// A walk that ended early left a short trail. The next one passes that trail's end, and goes on for longer than a
// trail.
TEST_F(Trail, GoesOnBehindATrailThatEndsEarly) {
  call(400);
  for (const std::uint32_t limit : {10U, 150U, 200U}) {
    std::vector<std::uint64_t> frames;
    target.trail = {};
    for (int walk = 0; walk < 3; ++walk) {  // the memo knows the rules by then, so the steps are plain
      target.frame_limit = limit;
      (void)target.walk(lay_out(frames));
    }
    target.frame_limit = 500;
    for (int more = 0; more < 4; ++more) {
      stack.back().offset ^= 1;
      call(3);
      check();
      if (HasFatalFailure()) return;
    }
  }
}

// The same with random places where walks end.
TEST_F(Trail, RandomLimitsLeaveNoWrongFrame) {
  for (int round = 0; round < 3000; ++round) {
    stack.resize(1 + random() % stack.size());
    call(random() % 300);
    if (stack.size() > 480) stack.resize(480);
    std::vector<std::uint64_t> frames;
    const wl_cursor start = lay_out(frames);
    target.frame_limit = random() % 2 == 0 ? 1 + random() % 300 : 500;
    const std::vector<std::uint64_t> walked = target.walk(start);
    frames.resize(std::min<std::size_t>(frames.size(), target.frame_limit));
    ASSERT_EQ(walked, frames) << round;
  }
}

// A return address whose bit 63 is set is no frame of the trail's that is exact.
TEST_F(Trail, ABitThatMeansExactIsNoReturnAddress) {
  for (int i = 0; i < 5; ++i) stack.push_back({kSmall, 0x40, 0, 0});
  std::vector<std::uint64_t> frames;
  const wl_cursor start = lay_out(frames);
  for (int walk = 0; walk < 2; ++walk) (void)target.walk(start);
  auto& bytes = target.memory.begin()->second;
  std::uint64_t word;
  std::memcpy(&word, bytes.data() + 24, 8);  // of the second frame
  word |= WL_FRAME_EXACT;
  std::memcpy(bytes.data() + 24, &word, 8);
  for (int walk = 0; walk < 3; ++walk) {
    const auto walked = target.walk(start);
    EXPECT_EQ(walked.size(), 3U);
    EXPECT_EQ(target.scratch->unwind.end, WL_END_NO_MAPPING);
  }
}

TEST_F(Trail, TheFrameLimitHoldsOnIt) {
  for (int i = 0; i < 100; ++i) stack.push_back({kSmall, 0x40, 0, 0});
  std::vector<std::uint64_t> frames;
  const wl_cursor start = lay_out(frames);
  EXPECT_EQ(target.walk(start), frames);
  for (const std::uint32_t limit : {1U, 2U, 50U, 100U}) {
    target.frame_limit = limit;
    EXPECT_EQ(target.walk(start).size(), limit);
    EXPECT_EQ(target.scratch->unwind.end, WL_END_DEPTH);
  }
  target.frame_limit = 101;
  EXPECT_EQ(target.walk(start), frames);
  EXPECT_EQ(target.scratch->unwind.end, WL_END_COMPLETE);
}

// The stack's words are as they were, and the code is another program's.
TEST_F(Trail, ItIsOfOneThreadAndOfOneStateOfTheProcess) {
  call(40);
  check();
  check();
  EXPECT_EQ(followed, 40U);
  target.scratch->event.head.tid = 8;
  check();
  EXPECT_EQ(followed, 0U);
  ++target.scratch->unwind.space;
  check();
  EXPECT_EQ(followed, 0U);
}

}  // namespace
}  // namespace windlass
