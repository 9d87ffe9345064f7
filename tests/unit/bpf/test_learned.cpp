// Frames of runtimes' code that the kernel side leaves by what it was taught (bpf/windlass_learned.h), as user code.
#include <gtest/gtest.h>

#include <vector>

#include "fake_target.h"

namespace windlass::testing {
namespace {

constexpr std::uint64_t kGenerated = 0x7f00'0000'0000, kGuard = 0x6000'0000'0000;

// main, in a file, has called a() of a runtime, which has called the interrupted b() of it.
class Learned : public ::testing::Test {
 protected:
  Learned() {
    wl_mapping generated{};
    generated.begin = kGenerated;
    generated.end = kGenerated + 0x1000;
    generated.kind = WL_MAPPING_LEARNED;
    target.set_mappings({generated});
    target.write(FakeTarget::kStack, {1, 2, kGenerated + 0x110, 3, 4, 5, kGenerated + 0x1f, 0, 0});
    target.write(kGuard, {77, 78});
  }
  // `bytes` above sp is the return address.
  static wl_learned lesson(int bytes) {
    wl_learned made{};
    made.rule = rule_of(WL_CFA_REG, WL_X64_RSP, bytes + 8);
    made.rule.proof = WL_PROOF_NO_END;
    return made;
  }
  void teach(std::uint64_t pc, std::uint32_t kind, const wl_learned& what) { target.teach(pc, kind, what); }
  int walk() {
    target.scratch->taken_words = 0;
    frames = target.walk(FakeTarget::cursor(kGenerated + 0x100, FakeTarget::kStack, 0));
    return static_cast<int>(target.scratch->unwind.end);
  }

  FakeTarget target;
  std::vector<std::uint64_t> frames;
};

TEST_F(Learned, FramesAreLeftAsTaughtAndOthersGoToTheAgent) {
  EXPECT_EQ(walk(), WL_END_NO_ROW);
  EXPECT_EQ(frames.size(), 1U);
  teach(kGenerated + 0x100, WL_LEARNED_EXACT, lesson(16));
  EXPECT_EQ(walk(), WL_END_NO_ROW);
  EXPECT_EQ(frames, (std::vector<std::uint64_t>{(kGenerated + 0x100) | WL_FRAME_EXACT, kGenerated + 0x110}));
  teach(kGenerated + 0x10f, 0, lesson(24));
  EXPECT_EQ(walk(), WL_END_NO_ROW);
  EXPECT_EQ(frames.size(), 3U) << "a return address is looked up in front of it";
  EXPECT_EQ(target.scratch->unwind.learned_frames, 2U);
}

TEST_F(Learned, ALessonOfABlockServesItsPlaces) {
  wl_learned of_block = lesson(16);
  of_block.places = 0b10;
  teach(kGenerated + 0x100, WL_LEARNED_EXACT | WL_LEARNED_BLOCK, of_block);
  walk();
  EXPECT_EQ(frames.size(), 1U) << "it holds for the second address of the block alone";
  of_block.places = 0b01;
  teach(kGenerated + 0x100, WL_LEARNED_EXACT | WL_LEARNED_BLOCK, of_block);
  walk();
  EXPECT_EQ(frames.size(), 2U) << "what is returned to is of another kind";
  wl_learned of_both = lesson(24);
  of_both.places = 1 << 0xf;
  teach(kGenerated + 0x100, WL_LEARNED_BLOCK, of_both);
  walk();
  EXPECT_EQ(frames.size(), 3U);
  of_both.places = 1;
  of_both.rule.cfa_offset = 24;
  target.lessons.clear();
  teach(kGenerated + 0x100, WL_LEARNED_BLOCK, of_both);
  walk();
  EXPECT_EQ(frames.size(), 2U) << "it holds for interrupted frames, too";
  target.lessons[{kGenerated + 0x100, WL_LEARNED_BLOCK}].places = 3;
  walk();
  EXPECT_EQ(frames.size(), 1U) << "half of another element";
}

TEST_F(Learned, ALessonOfALargeBlockServesItsPieces) {
  constexpr std::uint32_t kLarge = WL_LEARNED_BLOCK | WL_LEARNED_LARGE;
  wl_learned large = lesson(16);
  large.places = ~(std::uint64_t{1} << 0x100 / 8);
  teach(kGenerated, kLarge, large);
  walk();
  EXPECT_EQ(frames.size(), 1U) << "all pieces but that of the address";
  large.places = std::uint64_t{1} << 0x100 / 8;
  teach(kGenerated, kLarge, large);
  walk();
  EXPECT_EQ(frames.size(), 2U);
  EXPECT_EQ(target.scratch->unwind.learned_frames, 1U);
  large.places |= std::uint64_t{1} << 0x10f / 8;
  teach(kGenerated, kLarge, large);
  walk();
  EXPECT_EQ(target.scratch->unwind.learned_frames, 2U) << "of what has called, too";
}

// What is left of the code before at an address does not hide the lesson of the code that is there now.
TEST_F(Learned, ALessonOfOtherCodeIsPassedOver) {
  wl_learned before = lesson(0), now = lesson(16);
  before.guard_address = now.guard_address = kGuard;
  before.guard_mask = now.guard_mask = 0xff;
  before.guard_value = 76;
  now.guard_value = 77;
  before.places = now.places = ~std::uint64_t{0};
  teach(kGenerated + 0x100, WL_LEARNED_BLOCK, before);
  walk();
  EXPECT_EQ(frames.size(), 1U);
  teach(kGenerated, WL_LEARNED_BLOCK | WL_LEARNED_LARGE, now);
  walk();
  ASSERT_GE(frames.size(), 2U);
  EXPECT_EQ(frames[1], kGenerated + 0x110);
}

TEST_F(Learned, APlaceWithALessonOfItsOwnIsOutOfTheBlocks) {
  wl_learned of_block = lesson(0);
  of_block.places = ~std::uint64_t{1};
  teach(kGenerated + 0x100, WL_LEARNED_BLOCK, of_block);
  teach(kGenerated + 0x100, WL_LEARNED_EXACT, lesson(16));
  walk();
  EXPECT_EQ(frames[1], kGenerated + 0x110);
}

TEST_F(Learned, AGuardThatHasChangedGoesToTheAgent) {
  wl_learned guarded = lesson(16);
  guarded.guard_address = kGuard;
  guarded.guard_mask = 0xff;
  guarded.guard_value = 77;
  teach(kGenerated + 0x100, WL_LEARNED_EXACT, guarded);
  walk();
  EXPECT_EQ(frames.size(), 2U);
  const std::uint64_t hash = target.scratch->unwind.hash;
  target.write(kGuard, {0x1234'0000 + 77});
  walk();
  EXPECT_EQ(frames.size(), 2U) << "only the bits of the mask count";
  target.write(kGuard, {79});
  EXPECT_EQ(walk(), WL_END_NO_ROW);
  EXPECT_EQ(frames.size(), 1U);
  guarded.guard_value = 79;
  teach(kGenerated + 0x100, WL_LEARNED_EXACT, guarded);
  walk();
  EXPECT_EQ(frames.size(), 2U);
  EXPECT_NE(target.scratch->unwind.hash, hash) << "another function at the address is another stack";
  guarded.guard_address = 8;
  teach(kGenerated + 0x100, WL_LEARNED_EXACT, guarded);
  EXPECT_EQ(walk(), WL_END_NO_ROW) << "it cannot be read";
  EXPECT_EQ(frames.size(), 1U);
}

// The map's element was given to another key while it was read, or is half of one and half of the other.
TEST_F(Learned, ALessonOfAnotherKeyIsNotTaken) {
  teach(kGenerated + 0x100, WL_LEARNED_EXACT, lesson(16));
  target.lessons.begin()->second.rule.cfa_offset += 8;
  EXPECT_EQ(walk(), WL_END_NO_ROW);
  EXPECT_EQ(frames.size(), 1U);
  teach(kGenerated + 0x120, WL_LEARNED_EXACT, lesson(16));
  target.lessons[{kGenerated + 0x100, WL_LEARNED_EXACT}] = target.lessons[{kGenerated + 0x120, WL_LEARNED_EXACT}];
  walk();
  EXPECT_EQ(frames.size(), 1U);
}

TEST_F(Learned, WordsAreTakenAlongWithTheFrame) {
  wl_learned lesson_of_b = lesson(16), lesson_of_a = lesson(24);
  lesson_of_b.taken[0] = {8, WL_X64_RSP, 0};
  lesson_of_b.taken[1] = {0, WL_X64_RBX, WL_TAKEN_REGISTER};
  lesson_of_b.taken_count = 2;
  lesson_of_a.taken[0] = {0, WL_X64_RSP, WL_TAKEN_SILENT};
  lesson_of_a.taken_count = 1;
  teach(kGenerated + 0x100, WL_LEARNED_EXACT, lesson_of_b);
  teach(kGenerated + 0x10f, 0, lesson_of_a);
  walk();
  ASSERT_EQ(frames.size(), 3U);
  const auto taken = [&] {
    return std::vector<std::uint64_t>(target.scratch->taken, target.scratch->taken + target.scratch->taken_words);
  };
  const std::vector<std::uint64_t> expected{2ULL << 32 | 0, 2, 0x1000 + WL_X64_RBX, 1ULL << 32 | 1, 3};
  EXPECT_EQ(taken(), expected);
  const std::uint64_t hash = target.scratch->unwind.hash;
  target.write(FakeTarget::kStack, {1, 2, kGenerated + 0x110, 33, 4, 5, kGenerated + 0x1f, 0, 0});
  walk();
  EXPECT_EQ(target.scratch->unwind.hash, hash) << "a silent word";
  target.write(FakeTarget::kStack, {1, 22, kGenerated + 0x110, 33, 4, 5, kGenerated + 0x1f, 0, 0});
  walk();
  EXPECT_NE(target.scratch->unwind.hash, hash) << "a word that tells stacks apart";
}

TEST_F(Learned, AWordBehindAnObjectIsTakenInThePlaceOfItsPointer) {
  target.write(FakeTarget::kStack, {1, kGuard + 1, kGenerated + 0x110});
  wl_learned made = lesson(16);
  made.taken[0] = {8, WL_X64_RSP, 1 << WL_TAKEN_BEHIND};
  made.taken_count = 1;
  teach(kGenerated + 0x100, WL_LEARNED_EXACT, made);
  walk();
  ASSERT_EQ(frames.size(), 2U);
  EXPECT_EQ(target.scratch->taken[1], 78U);
  target.write(FakeTarget::kStack, {1, 9, kGenerated + 0x110});
  EXPECT_EQ(walk(), WL_END_NO_ROW) << "no object is there";
  EXPECT_EQ(frames.size(), 1U);
}

TEST_F(Learned, WordsThatAreNotThereGoToTheAgent) {
  const auto end_with = [&](const wl_taken& word) {
    wl_learned made = lesson(16);
    made.taken[0] = word;
    made.taken_count = 1;
    teach(kGenerated + 0x100, WL_LEARNED_EXACT, made);
    walk();
    return frames.size();
  };
  EXPECT_EQ(end_with({0, WL_X64_RSP, 0}), 2U);
  EXPECT_EQ(end_with({-8, WL_X64_RSP, 0}), 1U) << "below the stack pointer: not written yet";
  EXPECT_EQ(end_with({0x7ff0, WL_X64_RSP, 0}), 1U) << "cannot be read";
  EXPECT_EQ(end_with({0, 40, WL_TAKEN_REGISTER}), 1U) << "no such register";
}

TEST_F(Learned, MoreWordsThanThereIsRoomForGoToTheAgent) {
  // A frame that calls itself: its return address is its own address.
  std::vector<std::uint64_t> stack(2 * WL_MAX_TAKEN_WORDS, kGenerated + 0x110);
  target.write(FakeTarget::kStack, stack);
  wl_learned recursive = lesson(0);
  recursive.taken[0] = {0, WL_X64_RSP, 0};
  recursive.taken_count = 1;
  teach(kGenerated + 0x100, WL_LEARNED_EXACT, recursive);
  teach(kGenerated + 0x10f, 0, recursive);
  wl_unwind& unwind = target.scratch->unwind;
  target.scratch->taken_words = WL_MAX_TAKEN_WORDS - 4;
  frames = target.walk(FakeTarget::cursor(kGenerated + 0x100, FakeTarget::kStack, 0));
  EXPECT_EQ(unwind.end, static_cast<unsigned>(WL_END_NO_ROW));
  EXPECT_EQ(target.scratch->taken_words, WL_MAX_TAKEN_WORDS);
}

}  // namespace
}  // namespace windlass::testing
