// Steps from code without rows that the agent has checked (bpf/windlass_learned.h), as user code.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "fake_target.h"
#include "lookup/table/builder.h"

namespace windlass::testing {
namespace {

constexpr std::uint64_t kFunction = FakeTarget::kCode + 0x100, kCaller = FakeTarget::kCode + 0x210;

// a() of a file without rows has called the interrupted b().
class Steady : public ::testing::Test {
 protected:
  Steady() {
    wl_mapping file{};
    file.begin = FakeTarget::kCode;
    file.end = FakeTarget::kCode + 0x1000;
    file.kind = WL_MAPPING_FILE;
    file.module = 1;
    target.set_mappings({file});
    target.modules[1].state = WL_MODULE_NO_TABLE;
    target.write(FakeTarget::kStack, {1, 2, kCaller, 3, 4, 5});
  }
  static wl_steady step(int bytes) {
    wl_steady made{};
    made.rule = rule_of(WL_CFA_REG, WL_X64_RSP, bytes + 8);
    made.rule.proof = WL_PROOF_NO_END;
    made.from_sp = bytes + 8;
    made.callers[1] = kCaller;
    made.certainty = WL_CHECKED;
    return made;
  }
  void teach(const wl_steady& step, std::uint64_t pc = kFunction, std::uint32_t exact = WL_LEARNED_EXACT) {
    target.teach(pc, WL_LEARNED_STEP | exact, std::bit_cast<wl_learned>(step));
  }
  // How many frames the walk comes to.
  std::size_t walk(std::uint64_t fp = 0x10) {
    target.scratch->unwind.certainty = WL_DESCRIBED;
    frames = target.walk(FakeTarget::cursor(kFunction, FakeTarget::kStack, fp));
    return frames.size();
  }
  [[nodiscard]] int end() const { return static_cast<int>(target.scratch->unwind.end); }

  FakeTarget target;
  std::vector<std::uint64_t> frames;
};

TEST_F(Steady, AStepIsRepeatedWithTheCertaintyThatTheAgentFound) {
  EXPECT_EQ(walk(), 1U);
  teach(step(16));
  EXPECT_EQ(walk(), 2U);
  EXPECT_EQ(frames, (std::vector<std::uint64_t>{kFunction | WL_FRAME_EXACT, kCaller}));
  EXPECT_EQ(target.scratch->unwind.certainty, static_cast<unsigned>(WL_CHECKED));
  teach(step(16), kFunction, 0);
  target.lessons.erase({kFunction, WL_LEARNED_STEP | WL_LEARNED_EXACT});
  EXPECT_EQ(walk(), 1U) << "that is what holds behind a call";
}

TEST_F(Steady, AnotherReturnAddressGoesToTheAgent) {
  teach(step(16));
  target.write(FakeTarget::kStack, {1, 2, kCaller + 1, 3, 4, 5});
  EXPECT_EQ(walk(), 1U);
  target.teach_call(kFunction, kCaller + 1, WL_LEARNED_CALL | WL_LEARNED_EXACT);
  EXPECT_EQ(walk(), 2U) << "one that the step has no room for";
  target.calls.clear();
  target.teach_call(kFunction, kCaller + 1, WL_LEARNED_CALL);
  EXPECT_EQ(walk(), 1U) << "of a frame that has called";
  target.teach_call(kFunction, kCaller + 1, WL_LEARNED_CALL | WL_LEARNED_EXACT, FakeTarget::kEpoch - 1);
  EXPECT_EQ(walk(), 1U) << "other code was there";
  target.calls.clear();
  target.teach_call(kFunction, kCaller + 1, WL_LEARNED_CALL | WL_LEARNED_EXACT);
  target.calls.begin()->second.places = 1;
  EXPECT_EQ(walk(), 1U) << "half of another element";
  wl_steady none = step(16);
  none.callers[1] = 0;
  teach(none);
  target.write(FakeTarget::kStack, {1, 2, 0, 3, 4, 5});
  EXPECT_EQ(walk(), 1U) << "an empty place is no return address of 0";
}

TEST_F(Steady, AProvedStepHoldsForEveryReturnAddressBehindACall) {
  constexpr std::uint64_t kOther = kCaller + 0x20;
  std::vector<std::uint8_t> code(8, 0x90);
  target.write_code(kOther - code.size(), code);
  target.write(FakeTarget::kStack, {1, 2, kOther, 3, 4, 5});
  wl_steady proved = step(16);
  proved.callers[0] = WL_ANY_CALLER;
  proved.callers[1] = 0;
  proved.certainty = WL_PROVED;
  teach(proved);
  EXPECT_EQ(walk(), 1U) << "it stands behind no call";
  code[3] = 0xe8;
  target.write_code(kOther - code.size(), code);
  EXPECT_EQ(walk(), 2U);
  EXPECT_EQ(target.scratch->unwind.certainty, static_cast<unsigned>(WL_PROVED));
  target.write(FakeTarget::kStack, {1, 2, 0, 3, 4, 5});
  EXPECT_EQ(walk(), 1U) << "nor does 0";
}

// A whole function is taught by blocks of its code, which hold for interrupted frames and for those that have called.
TEST_F(Steady, ABlockOfAProvedFunctionHoldsForEachOfItsPlaces) {
  constexpr std::uint64_t kBlock = kFunction & ~std::uint64_t{WL_LEARNED_BLOCK_BYTES - 1};
  constexpr std::uint64_t kLarge = kFunction & ~std::uint64_t{WL_LEARNED_LARGE_BYTES - 1};
  std::vector<std::uint8_t> code(8, 0x90);
  target.write_code(kCaller - code.size(), code);
  wl_learned block{};
  block.rule = step(16).rule;
  block.places = std::uint64_t{1} << (kFunction - kBlock);
  target.teach(kBlock, WL_LEARNED_STEP | WL_LEARNED_BLOCK, block);
  EXPECT_EQ(walk(), 1U) << "the caller stands behind no call";
  code[3] = 0xe8;
  target.write_code(kCaller - code.size(), code);
  EXPECT_EQ(walk(), 2U);
  EXPECT_EQ(target.scratch->unwind.certainty, static_cast<unsigned>(WL_PROVED));
  block.places = ~block.places;
  target.teach(kBlock, WL_LEARNED_STEP | WL_LEARNED_BLOCK, block);
  EXPECT_EQ(walk(), 1U) << "another place of the block";
  block.places = std::uint64_t{1} << ((kFunction - kLarge) >> WL_LEARNED_PIECE_SHIFT);
  target.teach(kLarge, WL_LEARNED_STEP | WL_LEARNED_BLOCK | WL_LEARNED_LARGE, block);
  EXPECT_EQ(walk(), 2U);
  target.teach(kFunction, WL_LEARNED_STEP | WL_LEARNED_EXACT, {});
  EXPECT_EQ(walk(), 1U) << "the place was contradicted";
}

// The same of code that may change: how the function begins, and all of the block.
TEST_F(Steady, ABlockOfGeneratedCodeHoldsWhileTheCodeIsTheSame) {
  constexpr std::uint64_t kBlock = kFunction & ~std::uint64_t{WL_LEARNED_BLOCK_BYTES - 1}, kBegin = kBlock - 0x80;
  std::vector<std::uint8_t> call(8, 0xe8), code(kFunction - kBegin + WL_LEARNED_BLOCK_BYTES);
  for (std::size_t i = 0; i < code.size(); ++i) code[i] = static_cast<std::uint8_t>(i);
  target.write_code(kCaller - call.size(), call);
  target.write_code(kBegin, code);
  __u64 words[WL_LEARNED_BLOCK_BYTES / 8];
  std::memcpy(words, code.data(), sizeof words);
  const __u64 begin = wl_sum_of_words(0, words, WL_GUARD_WORDS);
  std::memcpy(words, code.data() + (kBlock - kBegin), sizeof words);
  wl_learned block{};
  block.rule = step(16).rule;
  block.places = ~std::uint64_t{0};
  block.guard_address = kBegin;
  block.guard_value = wl_block_guard(begin, words);
  target.teach(kBlock, WL_LEARNED_STEP | WL_LEARNED_BLOCK, block);
  EXPECT_EQ(walk(), 2U);
  EXPECT_EQ(target.scratch->unwind.certainty, static_cast<unsigned>(WL_PROVED));
  const auto walk_with = [&](std::uint64_t at) {
    std::vector<std::uint8_t> other = code;
    other[at - kBegin] ^= 1;
    target.write_code(kBegin, other);
    return walk();
  };
  for (const std::uint64_t at : {kBegin, kBegin + WL_GUARD_WORDS * 8 - 1, kBlock, kBlock + WL_LEARNED_BLOCK_BYTES - 1})
    EXPECT_EQ(walk_with(at), 1U) << at - kBegin;
  for (const std::uint64_t at : {kBegin + WL_GUARD_WORDS * 8, kBlock - 1}) EXPECT_EQ(walk_with(at), 2U) << at - kBegin;
}

// As most of a GraalVM native image is: its runtime's C code has rows, and the gap behind them is large.
TEST_F(Steady, AStepFromCodeGeneratedAheadOfTimeIsRepeated) {
  table::TableBuilder builder;
  for (const std::uint64_t begin : {0x10000, 0x50000}) {
    builder.begin_function(begin, begin + 0x100);
    builder.row(begin, rule_of(WL_CFA_REG, WL_X64_RSP, 8));
    builder.end_function();
  }
  const auto table = builder.finish();
  ASSERT_TRUE(table.has_value());
  const auto placed = table::load_table(*table, *target.arena);
  ASSERT_TRUE(placed.has_value());
  target.modules[1] = placed->module;
  wl_mapping file{};
  file.begin = FakeTarget::kCode;
  file.end = FakeTarget::kCode + 0x1000;
  file.bias = FakeTarget::kCode - 0x30000;
  file.kind = WL_MAPPING_FILE;
  file.module = 1;
  target.set_mappings({file});
  EXPECT_EQ(walk(), 1U);
  teach(step(16));
  EXPECT_EQ(walk(), 2U);
}

// The same of code that was made at run time, and may be other code at the next sample.
TEST_F(Steady, AStepFromGeneratedCodeIsRepeatedForTheSameCode) {
  wl_mapping generated{};
  generated.begin = FakeTarget::kCode;
  generated.end = FakeTarget::kCode + 0x1000;
  generated.kind = WL_MAPPING_GENERATED;
  target.set_mappings({generated});
  std::vector<std::uint8_t> code(8 * WL_GUARD_WORDS), calls{0x4c, 0x89, 0x1c, 0x24, 0x90, 0x41, 0xff, 0xd2};
  for (std::size_t i = 0; i < code.size(); ++i) code[i] = static_cast<std::uint8_t>(0x90 + i);
  const auto guard_of = [](const std::vector<std::uint8_t>& bytes) {
    __u64 words[WL_GUARD_WORDS];
    std::memcpy(words, bytes.data(), sizeof words);
    return wl_code_guard(words);
  };
  const auto word_of = [](const std::vector<std::uint8_t>& bytes) {
    __u64 word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    return word;
  };
  const auto write = [&] {
    target.write_code(kFunction - WL_GUARD_BEFORE, code);
    target.write_code(kCaller - calls.size(), calls);
  };
  write();
  wl_steady made = step(16);
  made.guard = guard_of(code);
  made.callers[1] = wl_caller_word(kCaller, word_of(calls), made.guard);
  EXPECT_EQ(walk(), 1U);
  teach(made);
  EXPECT_EQ(walk(), 2U);
  for (std::uint8_t& byte : code) {
    byte ^= 1;
    write();
    EXPECT_EQ(walk(), 1U) << "other code at the pc";
    byte ^= 1;
  }
  for (std::uint8_t& byte : calls) {
    byte ^= 0x80;
    write();
    EXPECT_EQ(walk(), 1U) << "other code before the return address";
    byte ^= 0x80;
  }
  calls[7] = 0xd3;
  write();
  const std::uint64_t word = wl_caller_word(kCaller, word_of(calls), made.guard);
  target.teach_call(kFunction, word, WL_LEARNED_CALL | WL_LEARNED_EXACT);
  EXPECT_EQ(walk(), 2U) << "one that the step has no room for";
  made.guard = 0;
  made.callers[1] = wl_caller_word(kCaller, word_of(calls), 0);
  teach(made);
  EXPECT_EQ(walk(), 2U) << "a step from a file's code to code that may change";
  made.callers[1] = kCaller;
  teach(made);
  EXPECT_EQ(walk(), 2U) << "and to code that stays";
}

// The agent has looked there for a return address first, and found none.
TEST_F(Steady, AWordOfTheStackHasToBeOfTheSameKind) {
  std::vector<std::uint8_t> calls(8, 0x90);
  calls[3] = 0xe8;
  target.write_code(kCaller - calls.size(), calls);
  wl_steady made = step(16);
  made.word_at = 8;
  const auto walks = [&](std::uint64_t word) {
    target.write(FakeTarget::kStack, {1, word, kCaller, 3, 4, 5});
    return walk() == 2U;
  };
  made.word = WL_WORD_ZERO;
  teach(made);
  EXPECT_TRUE(walks(0));
  EXPECT_FALSE(walks(1));
  made.word = WL_WORD_OTHER;
  teach(made);
  EXPECT_FALSE(walks(0));
  EXPECT_TRUE(walks(1));
  EXPECT_TRUE(walks(0xfffe000000000007)) << "JavaScriptCore's number 7";
  EXPECT_FALSE(walks(kCaller)) << "a return address";
}

TEST_F(Steady, AnotherLayoutGoesToTheAgent) {
  wl_steady by_fp = step(16);
  by_fp.rule.cfa_reg = WL_X64_RBP;
  by_fp.rule.cfa_offset = by_fp.from_fp = 16;
  teach(by_fp);
  EXPECT_EQ(walk(FakeTarget::kStack + 8), 2U);
  target.write(FakeTarget::kStack, {1, 2, kCaller, kCaller, 4, 5});
  EXPECT_EQ(walk(FakeTarget::kStack + 16), 1U) << "the frame is larger than the one that was checked";
  by_fp.from_sp = 0;
  teach(by_fp);
  EXPECT_EQ(walk(FakeTarget::kStack + 16), 2U) << "which does not matter";
  EXPECT_EQ(walk(FakeTarget::kStack + 12), 1U) << "not aligned";
  EXPECT_EQ(walk(FakeTarget::kStack - 16), 1U) << "below the stack pointer";
  wl_steady by_sp = step(16);
  by_sp.from_fp = 16;
  teach(by_sp);
  EXPECT_EQ(walk(FakeTarget::kStack + 8), 2U);
  EXPECT_EQ(walk(FakeTarget::kStack + 16), 1U) << "the frame record is another frame's";
}

TEST_F(Steady, AnOutermostFrameIsOneOnEveryStack) {
  wl_steady last{};
  last.rule.ra_kind = WL_REG_UNDEFINED;
  teach(last);
  EXPECT_EQ(walk(), 1U);
  EXPECT_EQ(end(), WL_END_COMPLETE);
}

TEST_F(Steady, AContradictedPlaceGoesToTheAgent) {
  teach(step(16));
  target.teach(kFunction, WL_LEARNED_STEP | WL_LEARNED_EXACT, {});
  EXPECT_EQ(walk(), 1U);
  EXPECT_NE(end(), WL_END_COMPLETE);
}

// a() leaves by its frame pointer, and an indirect call in main() may lead there. Generated code without a frame may
// have been skipped on the way.
TEST_F(Steady, AStackWithAStepByTheFramePointerIsNotWhole) {
  constexpr std::uint64_t kMain = FakeTarget::kCode + 0x310, kFrame = FakeTarget::kStack + 32;
  std::vector<std::uint8_t> leaves(WL_CODE_BYTES, 0x90), calls(8, 0x90);
  leaves[WL_CODE_BEFORE] = 0xc9;  // leave; ret
  leaves[WL_CODE_BEFORE + 1] = 0xc3;
  calls[6] = 0xff;  // call rax
  calls[7] = 0xd0;
  target.write_code(kCaller - WL_CODE_BEFORE, leaves);
  target.write_code(kMain - calls.size(), calls);
  target.write(FakeTarget::kStack, {1, 2, kCaller, 3, 0, kMain, 0, 0, 0});
  teach(step(16));
  wl_steady last{};
  last.rule.ra_kind = WL_REG_UNDEFINED;
  teach(last, kMain - 1, 0);
  EXPECT_EQ(walk(kFrame), 3U);
  EXPECT_EQ(end(), WL_END_GUESSED);
  wl_steady by_fp{};
  by_fp.rule = rule_of(WL_CFA_REG, WL_X64_RBP, 16, WL_REG_CFA, -16);
  by_fp.from_fp = 16;
  by_fp.callers[0] = kMain;
  by_fp.certainty = WL_CHECKED;
  teach(by_fp, kCaller - 1, 0);
  EXPECT_EQ(walk(kFrame), 3U);
  EXPECT_EQ(end(), WL_END_COMPLETE) << "the agent has checked this one, too";
}

}  // namespace
}  // namespace windlass::testing
