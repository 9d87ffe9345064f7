// What the agent teaches the kernel side of a runtime's frames, and what it makes of the words that come back.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/registers.h"
#include "lookup/table/project.h"
#include "profiler/samples/frame_teacher.h"
#include "profiler/samples/taken_words.h"
#include "windlass_event_layout.h"

namespace windlass::profiler {
namespace {

constexpr std::uint64_t kCode = 0x7000'0000;
constexpr std::uint64_t kInterpreter = kCode + 0x1000;  // code behind it runs the function whose number is at rbp - 16

// Knows frames of kCode; those from kInterpreter on need two words.
class FakeRuntime final : public manager::PublishedCode {
 public:
  FakeRuntime() : PublishedCode(0x1000, os::FileIdentity()) {}
  std::uint64_t begin() const override { return 0; }
  std::uint64_t end() const override { return ~std::uint64_t{0}; }
  std::uint64_t rank() const override { return 1; }
  void set_time(std::uint64_t) override {}
  std::uint64_t functions_at(std::uint64_t, std::uint64_t, std::uint64_t,
                             std::vector<sources::NamedFunction>&) override {
    return 0;
  }
  std::uint64_t frame_function(std::uint64_t, const Registers& frame, const Memory& memory) override {
    ++asked;
    std::uint64_t number = 0;
    if (!memory.read(frame.get(x86_64::kRbp) - 16, &number, sizeof number)) return 0;
    return number + (frame.has(x86_64::kRbx) ? frame.get(x86_64::kRbx) : 0);
  }
  bool teaches() const override { return true; }
  std::optional<wl_learned> lesson(CodeAddress pc) override {
    ++lessons;
    if (pc.lookup() < kCode || pc.lookup() == unknown) return std::nullopt;
    wl_learned made{};
    made.rule.cfa_kind = WL_CFA_REG;
    made.rule.cfa_offset = pc.lookup() < other ? 16 : 32;
    if (pc.lookup() < kInterpreter) return made;
    made.taken[0] = {-16, x86_64::kRbp, 0};
    made.taken[1] = {0, x86_64::kRbx, WL_TAKEN_REGISTER};
    made.taken[2] = {-8, x86_64::kRbp, WL_TAKEN_SILENT};
    made.taken_count = 3;
    return made;
  }
  // The function is code from kCode on, in stretches of 32 bytes.
  std::vector<Lessons> lessons_around(CodeAddress pc) override {
    std::vector<Lessons> all;
    if (pc.lookup() == alone) return all;
    for (std::uint64_t at = kCode; at < kCode + size; at += 0x20)
      all.push_back({{at, at + 0x20},
                     lesson(CodeAddress::instruction(at)),
                     interrupted_alone ? std::nullopt : lesson(CodeAddress::return_address(at + 1))});
    if (cut != 0) {
      auto first = all.front();
      first.stretch = {kCode + cut - 8, kCode + cut};
      first.interrupted->rule.cfa_offset = first.called->rule.cfa_offset = 48;
      all.insert(all.begin(), first);  // where two overlap the first one counts
    }
    return all;
  }
  std::vector<std::uint64_t> new_functions(std::size_t most) override {
    ++asked_ahead;
    std::vector<std::uint64_t> begins = ahead;
    begins.resize(std::min(begins.size(), most));
    return begins;
  }
  std::optional<wl_code_heap> heap_of(std::uint64_t) override { return heap; }
  std::unique_ptr<sources::UnwindSource> make_source() override { return nullptr; }

  std::uint64_t size = 0x100;  // of the function; half of a large block
  std::vector<std::uint64_t> ahead;
  int asked_ahead = 0;
  std::optional<wl_code_heap> heap;
  bool interrupted_alone = false;
  std::uint64_t alone = 0, cut = 0;
  std::uint64_t unknown = 0, other = ~std::uint64_t{0};
  int asked = 0, lessons = 0;
};

class TakenWordsTest : public testing::Test {
 protected:
  TakenWordsTest() {
    manager::PublishedCodes published;
    manager::add(published, runtime);
    maps.set_published(std::move(published));
    maps.add({kCode, kCode + 0x10000, 0, 0, 0, MappingKind::kGenerated});
    maps.add({0x1000, 0x2000, 0, 3, 0, MappingKind::kFile});
  }
  struct Key {
    std::uint64_t pc, epoch;
    std::uint32_t kind;
    auto operator<=>(const Key&) const = default;
  };
  [[nodiscard]] FrameTeacher::Pupil process(std::uint64_t epoch = 7) const { return {10, epoch, maps}; }

  std::shared_ptr<FakeRuntime> runtime = std::make_shared<FakeRuntime>();
  MapSet maps;
  std::map<Key, wl_learned> taught;
  FrameTeacher teacher{[this](const wl_learned_key& key, const wl_learned& lesson) {
    EXPECT_EQ(key.tgid, 10U);
    taught[{key.pc, key.epoch, key.kind}] = lesson;
  }};
  TakenWords words;
};

TEST_F(TakenWordsTest, AFrameThatHasBeenLeftTeachesItsFunction) {
  const std::vector<std::uint64_t> frames{(kCode + 0x45) | WL_FRAME_EXACT, kCode + 0x81, 0x1234, kCode + 0x101};
  teacher.teach(process(), {frames.data() + 2, 2}, 1);
  EXPECT_TRUE(taught.empty()) << "not that of a file, and not the last, which has not been left";
  teacher.teach(process(), frames, 1);
  ASSERT_EQ(taught.size(), 4U) << "by blocks of 64 bytes, and none again for the second frame";
  EXPECT_EQ(taught.at({kCode, 7, WL_LEARNED_BLOCK}).places, ~std::uint64_t{0});
}

TEST_F(TakenWordsTest, AStepThatIsProvedNeedsNoReturnAddressOfItsOwn) {
  CheckedStep checked{0x1100, 0, {}};
  checked.step.certainty = WL_CHECKED;
  CheckedStep proved{0x1200, 0, {}};
  proved.step.certainty = WL_PROVED;
  proved.step.callers[0] = WL_ANY_CALLER;
  for (std::uint64_t caller = 0x1300; caller < 0x1305; ++caller) {
    checked.caller = proved.caller = caller;
    teacher.teach(process(), std::vector{checked, proved}, 10'000'000'000);
  }
  const auto callers = [&](std::uint64_t pc) {
    return std::bit_cast<wl_steady>(taught.at({pc - 1, 7, WL_LEARNED_STEP})).callers[0];
  };
  EXPECT_EQ(callers(0x1100), 0x1300U);
  EXPECT_EQ(callers(0x1200), WL_ANY_CALLER);
  const auto of_calls = [](const auto& lesson) { return (lesson.first.kind & WL_LEARNED_CALL) != 0; };
  EXPECT_EQ(std::ranges::count_if(taught, of_calls), 2) << "the checked step's, for which it has no room";
}

TEST_F(TakenWordsTest, AStepFromOtherCodeAtTheAddressIsTaughtAnew) {
  CheckedStep one{0x1100, 0x1300, {}}, other{0x1100, 0x1400, {}};
  one.step.certainty = other.step.certainty = WL_CHECKED;
  one.step.guard = 7;
  other.step.guard = 9;
  one.step.rule.cfa_offset = 16;
  other.step.rule.cfa_offset = 32;
  const auto lesson = [&] { return std::bit_cast<wl_steady>(taught.at({0x10ff, 7, WL_LEARNED_STEP})); };
  const auto teach = [&](const CheckedStep& step) { teacher.teach(process(), std::vector{step}, 10'000'000'000); };
  teach(one);
  EXPECT_EQ(lesson().guard, 7U);
  teach(other);
  EXPECT_EQ(lesson().guard, 9U) << "no contradiction";
  EXPECT_EQ(lesson().rule.cfa_offset, 32);
  EXPECT_EQ(lesson().callers[0], 0x1400U);
  EXPECT_EQ(lesson().callers[1], 0U) << "of the code that is there now alone";
  one.step.guard = 9;
  teach(one);
  EXPECT_EQ(lesson().rule.cfa_offset, 0) << "of the same code that contradicts";
  one.step.guard = 7;
  teach(one);
  EXPECT_EQ(lesson().rule.cfa_offset, 16) << "which other code does not";
}

// Rows of 8 from 0x1100, of 32 from 0x1110, and of 8 from 0x13f0 to 0x1400, in a file that is mapped 0x500 higher.
CheckedStep step_of_function(std::uint64_t frame, std::int32_t cfa) {
  constexpr std::uint64_t kBias = 0x500;
  auto function = std::make_shared<flow::WholeFunction>();
  function->range = {0x1100 - kBias, 0x1400 - kBias};
  constexpr struct {
    std::uint64_t begin, end;
    std::int32_t cfa;
  } kRows[] = {{0x1100, 0x1110, 8}, {0x1110, 0x13f0, 32}, {0x13f0, 0x1400, 8}};
  for (const auto& it : kRows) {
    FrameRow row;
    row.begin = it.begin - kBias;
    row.end = it.end - kBias;
    row.cfa = CfaRule::at(x86_64::kRsp, it.cfa);
    row.return_address = RegisterRule::at_cfa(-8);
    function->rows.push_back(row);
  }
  CheckedStep step{frame, 0x1700, {}, function, kBias};
  FrameRow row = function->rows.front();
  row.cfa = CfaRule::at(x86_64::kRsp, cfa);
  step.step.rule = table::without_end(table::project(row, Architecture::kX86_64, WL_NO_XREG));
  step.step.certainty = WL_PROVED;
  step.step.callers[0] = WL_ANY_CALLER;
  return step;
}

TEST_F(TakenWordsTest, OneStepOfAProvedFunctionTeachesAllOfIt) {
  constexpr std::uint32_t kBlock = WL_LEARNED_STEP | WL_LEARNED_BLOCK;
  maps.add({0x1000, 0x2000, 0, 4, 0x500, MappingKind::kFile});
  const auto teach = [&](std::uint64_t frame, std::int32_t cfa) {
    teacher.teach(process(), std::vector{step_of_function(frame, cfa)}, 10'000'000'000);
  };
  teach(0x1200, 32);
  const auto places = [&](std::uint64_t block, std::uint32_t kind = 0) {
    return taught.at({block, 7, kBlock | kind}).places;
  };
  EXPECT_EQ(taught.size(), 6U) << "a large block, and what is left";
  EXPECT_EQ(places(0x1200, WL_LEARNED_LARGE), ~std::uint64_t{0} >> 0x10 / 8) << "but for the end";
  EXPECT_EQ(places(0x1100), ~std::uint64_t{0xffff}) << "of the rule of most";
  EXPECT_EQ(taught.at({0x1100, 7, kBlock}).rule.cfa_offset, 32);
  EXPECT_EQ(places(0x1140), ~std::uint64_t{0});
  EXPECT_EQ(places(0x13c0), std::uint64_t{0xffff} << 48);
  EXPECT_EQ(taught.at({0x13c0, 7, kBlock}).rule.cfa_offset, 8);
  taught.clear();
  teach(0x1300 | WL_FRAME_EXACT, 32);
  EXPECT_TRUE(taught.empty()) << "the function is known";
  teach(0x1108 | WL_FRAME_EXACT, 8);
  EXPECT_EQ(taught.size(), 1U) << "its block has the rule of most of its places";
  EXPECT_TRUE(taught.contains({0x1108, 7, WL_LEARNED_STEP | WL_LEARNED_EXACT}));

  MapSet others;
  others.add({0x8000, 0x9000, 0, 4, 0x7500, MappingKind::kFile});
  taught.clear();
  teacher.teach({10, 8, others}, std::vector{CheckedStep{0x8700, 0x8800, {}}}, 2);
  EXPECT_TRUE(taught.contains({0x8200, 8, kBlock | WL_LEARNED_LARGE})) << "the file's next process";
}

TEST_F(TakenWordsTest, AFunctionThatMayChangeIsTaughtWithItsCode) {
  constexpr std::uint32_t kBlock = WL_LEARNED_STEP | WL_LEARNED_BLOCK;
  CheckedStep step = step_of_function(0x1200, 32);
  step.step.guard = 7;
  step.step.callers[0] = 0x1700;
  auto function = std::make_shared<flow::WholeFunction>(*step.function);
  function->code.resize(0x300);
  for (std::size_t i = 0; i < function->code.size(); ++i) function->code[i] = static_cast<std::byte>(i % 251);
  step.function = function;
  maps.add({0x1000, 0x2000, 0, 0, 0, MappingKind::kGenerated});
  teacher.teach(process(), std::vector{step}, 10'000'000'000);
  ASSERT_TRUE(taught.contains({0x11c0, 7, kBlock}));
  const wl_learned& lesson = taught.at({0x11c0, 7, kBlock});
  EXPECT_EQ(lesson.guard_address, 0x1100U);
  __u64 code[WL_LEARNED_BLOCK_BYTES / 8];
  std::memcpy(code, function->code.data(), sizeof code);
  const __u64 begin = wl_sum_of_words(0, code, WL_GUARD_WORDS);
  std::memcpy(code, function->code.data() + 0xc0, sizeof code);
  EXPECT_EQ(lesson.guard_value, wl_block_guard(begin, code));
  EXPECT_EQ(taught.size(), 0x300 / WL_LEARNED_BLOCK_BYTES) << "blocks, each with its code, and the step not alone";
}

// Of a block that the function has a part of, steps are taught alone.
TEST_F(TakenWordsTest, ABlockOfTwoFunctionsThatMayChangeIsNotTaught) {
  constexpr std::uint32_t kBlock = WL_LEARNED_STEP | WL_LEARNED_BLOCK;
  CheckedStep step = step_of_function(0x1108, 32);
  step.step.guard = 7;
  step.step.callers[0] = 0x1700;
  auto function = std::make_shared<flow::WholeFunction>(*step.function);
  function->range.begin += 8;
  function->code.resize(0x2f8);
  step.function = function;
  maps.add({0x1000, 0x2000, 0, 0, 0, MappingKind::kGenerated});
  teacher.teach(process(), std::vector{step}, 10'000'000'000);
  EXPECT_FALSE(taught.contains({0x1100, 7, kBlock}));
  EXPECT_TRUE(taught.contains({0x1140, 7, kBlock}));
  EXPECT_TRUE(taught.contains({0x1107, 7, WL_LEARNED_STEP}));
}

// A program that ends within milliseconds: its next process runs the file elsewhere.
TEST_F(TakenWordsTest, StepsOfAFileAreTaughtToItsNextProcess) {
  constexpr std::uint64_t kBias = 0x6000;
  const auto checked = [](std::uint64_t frame, std::uint64_t caller, std::int16_t cfa = 16) {
    CheckedStep step{frame, caller, {}};
    step.step.certainty = WL_CHECKED;
    step.step.rule.cfa_offset = cfa;
    return step;
  };
  maps.add({0x3000, 0x4000, 0, 4, 0, MappingKind::kFile});
  teacher.teach(process(),
                std::vector{checked(0x1100, 0x1300), checked(0x1100, 0x1400), checked(0x1180 | WL_FRAME_EXACT, 0x1300),
                            checked(0x1200, 0x3300), checked(0x3100, 0x3300), checked(0x1500, 0x1300),
                            checked(0x1500, 0x1300, 32)},
                1);
  MapSet others;
  others.add({0x1000 + kBias, 0x2000 + kBias, 0, 3, kBias, MappingKind::kFile});
  taught.clear();
  teacher.teach({10, 8, others}, std::vector{checked(0x1700 + kBias, 0x1300 + kBias)}, 2);
  const auto lesson = [&](std::uint64_t pc, std::uint32_t kind = 0) {
    return std::bit_cast<wl_steady>(taught.at({pc + kBias, 8, WL_LEARNED_STEP | kind}));
  };
  EXPECT_EQ(lesson(0x10ff).callers[0] + lesson(0x10ff).callers[1], 0x1300 + 0x1400 + 2 * kBias);
  EXPECT_EQ(lesson(0x1180, WL_LEARNED_EXACT).callers[0], 0x1300 + kBias);
  EXPECT_EQ(lesson(0x16ff).callers[0], 0x1300 + kBias) << "its own";
  EXPECT_EQ(taught.size(), 3U) << "not those of other files or with callers there, nor what was contradicted";
  taught.clear();
  teacher.teach({10, 8, others}, std::vector{checked(0x1700 + kBias, 0x1300 + kBias)}, 3);
  EXPECT_TRUE(taught.empty()) << "once";
}

TEST_F(TakenWordsTest, WhatHoldsForInterruptedFramesAloneIsToldApart) {
  runtime->interrupted_alone = true;
  teacher.teach(process(), std::vector<std::uint64_t>{(kCode + 0x45) | WL_FRAME_EXACT, kCode + 0x81, kCode}, 1);
  ASSERT_EQ(taught.size(), 5U);
  EXPECT_TRUE(taught.contains({kCode + 0x40, 7, WL_LEARNED_EXACT | WL_LEARNED_BLOCK}));
  EXPECT_TRUE(taught.contains({kCode + 0x80, 7, 0})) << "a return address of which the function says nothing";
}

TEST_F(TakenWordsTest, ABlockHasTheLessonOfMostOfItsPlaces) {
  runtime->other = kCode + 0x60;
  teacher.teach(process(), std::vector<std::uint64_t>{(kCode + 0x45) | WL_FRAME_EXACT, kCode}, 1);
  ASSERT_EQ(taught.size(), 4U);
  const auto block = [&](std::uint64_t at) { return taught.at({at, 7, WL_LEARNED_BLOCK}); };
  EXPECT_EQ(block(kCode + 0x40).places & 0xffffffff,
            std::uint64_t{0xffffffff} * (block(kCode + 0x40).rule.cfa_offset == 16));
  EXPECT_EQ(block(kCode).rule.cfa_offset, 16);
  EXPECT_EQ(block(kCode + 0x80).rule.cfa_offset, 32);
  // What the block does not hold for is taught alone.
  const std::uint64_t left = block(kCode + 0x40).rule.cfa_offset == 16 ? kCode + 0x65 : kCode + 0x45;
  teacher.teach(process(), std::vector<std::uint64_t>{left | WL_FRAME_EXACT, kCode}, 2);
  ASSERT_EQ(taught.size(), 5U);
  EXPECT_NE((taught.at({left, 7, WL_LEARNED_EXACT}).rule.cfa_offset), block(kCode + 0x40).rule.cfa_offset);
}

TEST_F(TakenWordsTest, WhatHoldsForMostOfALargeBlockIsTaughtOnce) {
  runtime->size = 0x400;
  runtime->other = kCode + 0x60;
  const std::vector<std::uint64_t> frames{(kCode + 0x145) | WL_FRAME_EXACT, kCode};
  teacher.teach(process(), frames, 1);
  ASSERT_EQ(taught.size(), 4U) << "two large blocks, and what is left of the first";
  const wl_learned large = taught.at({kCode, 7, WL_LEARNED_BLOCK | WL_LEARNED_LARGE});
  EXPECT_EQ(large.rule.cfa_offset, 32);
  EXPECT_EQ(large.places, ~std::uint64_t{0} << 0x60 / 8);
  EXPECT_EQ(taught.at({kCode + 0x200, 7, WL_LEARNED_BLOCK | WL_LEARNED_LARGE}).places, ~std::uint64_t{0});
  EXPECT_EQ(taught.at({kCode, 7, WL_LEARNED_BLOCK}).places, ~std::uint64_t{0});
  EXPECT_EQ(taught.at({kCode + 0x40, 7, WL_LEARNED_BLOCK}).places, 0xffffffff);
  EXPECT_EQ(taught.at({kCode + 0x40, 7, WL_LEARNED_BLOCK}).rule.cfa_offset, 16);
  teacher.teach(process(), std::vector<std::uint64_t>{(kCode + 0x65) | WL_FRAME_EXACT, kCode + 0x161, kCode}, 2);
  EXPECT_EQ(taught.size(), 4U) << "the large block has these places";
}

// Pieces of several bytes hold as a whole, or not at all.
TEST_F(TakenWordsTest, APieceWithTwoLessonsIsInNoLargeBlock) {
  runtime->size = 0x200;
  runtime->cut = 0x13c;  // bytes 0x134 to 0x13b are a stretch of their own
  teacher.teach(process(), std::vector<std::uint64_t>{(kCode + 0x45) | WL_FRAME_EXACT, kCode}, 1);
  const std::uint64_t pieces = taught.at({kCode, 7, WL_LEARNED_BLOCK | WL_LEARNED_LARGE}).places;
  EXPECT_EQ(pieces, ~(std::uint64_t{3} << 0x130 / 8));
  const wl_learned rest = taught.at({kCode + 0x100, 7, WL_LEARNED_BLOCK});
  EXPECT_EQ(rest.places, std::uint64_t{0xff} << 0x34) << "the most of what is left";
}

TEST_F(TakenWordsTest, FunctionsThatAreNewAreTaughtBeforeTheyAreMet) {
  runtime->alone = kCode + 0x45;
  runtime->ahead = {kCode};
  const auto meet = [&](std::uint64_t at, std::uint64_t time) {
    runtime->alone = at;
    teacher.teach(process(), std::vector<std::uint64_t>{at | WL_FRAME_EXACT, kCode}, time);
  };
  meet(kCode + 0x445, 1);
  EXPECT_EQ(taught.size(), 5U) << "the frame that was met, and the new function";
  meet(kCode + 0x446, 2);
  EXPECT_EQ(runtime->asked_ahead, 1) << "not for each frame";
  meet(kCode + 0x447, 100'000'002);
  EXPECT_EQ(runtime->asked_ahead, 2);
}

TEST_F(TakenWordsTest, AHeapThatTheKernelSideReadsIsTaughtInParts) {
  wl_code_heap heap{};
  heap.begin = kCode - 0x100;
  heap.end = kCode + 0x1'2000;
  heap.base = 77;
  runtime->heap = heap;
  teacher.teach(process(), std::vector<std::uint64_t>{kCode + 0x45, kCode}, 1);
  ASSERT_EQ(taught.size(), 4U) << "three parts of 64 KiB, and the frame";
  for (const std::uint64_t part : {kCode - 0x1'0000, kCode, kCode + 0x1'0000}) {
    const wl_learned lesson = taught.at({part, 7, WL_LEARNED_HEAP});
    EXPECT_EQ(std::memcmp(&lesson, &heap, sizeof heap), 0);
  }
  EXPECT_TRUE(taught.contains({kCode + 0x44, 7, 0}));
  taught.clear();
  teacher.teach(process(), std::vector<std::uint64_t>{kCode + 0x55, kCode}, 2);
  EXPECT_EQ(taught.size(), 1U) << "its parts are known";
  teacher.teach(process(), std::vector<std::uint64_t>{(kCode + 0x65) | WL_FRAME_EXACT, kCode}, 2);
  EXPECT_TRUE(taught.contains({kCode + 0x40, 7, WL_LEARNED_BLOCK})) << "what is interrupted may be in an epilogue";
  teacher.teach(process(), std::vector<std::uint64_t>{kCode + 0x1'2045, kCode}, 3);
  EXPECT_FALSE(taught.contains({kCode + 0x1'0000, 7, WL_LEARNED_HEAP})) << "in the last part, and not in the heap";
}

TEST_F(TakenWordsTest, WhereNothingIsKnownABlockHasNoPlace) {
  runtime->unknown = kCode + 0x80;  // and so its stretch
  runtime->alone = kCode + 0x45;
  teacher.teach(process(), std::vector<std::uint64_t>{(kCode + 0x45) | WL_FRAME_EXACT, kCode}, 1);
  ASSERT_EQ(taught.size(), 1U) << "of this function nothing else is known";
  EXPECT_TRUE(taught.contains({kCode + 0x45, 7, WL_LEARNED_EXACT}));
  teacher.teach(process(), std::vector<std::uint64_t>{(kCode + 0xa5) | WL_FRAME_EXACT, kCode}, 1);
  EXPECT_EQ(taught.at({kCode + 0x80, 7, WL_LEARNED_BLOCK}).places, std::uint64_t{0xffffffff} << 32);
}

TEST_F(TakenWordsTest, ALessonIsGivenAgainAfterASecond) {
  const std::vector<std::uint64_t> frames{(kCode + 0x45) | WL_FRAME_EXACT, kCode};
  teacher.teach(process(), frames, 1);
  taught.clear();
  teacher.teach(process(), frames, 999'999'999);
  EXPECT_TRUE(taught.empty());
  teacher.teach(process(), frames, 1'000'000'001);
  EXPECT_EQ(taught.size(), 4U) << "the kernel side has dropped it";
  teacher.teach(process(8), frames, 1'000'000'002);
  EXPECT_EQ(taught.size(), 8U) << "another program of the process";
}

// A block may have the end of one function and the begin of the next.
TEST_F(TakenWordsTest, ASmallerPartOfABlockDoesNotReplaceALargerOne) {
  runtime->other = kCode + 0x50;  // and so from the next stretch on: kCode + 0x60
  const std::vector<std::uint64_t> frames{(kCode + 0x25) | WL_FRAME_EXACT, kCode};
  teacher.teach(process(), frames, 1);
  const wl_learned before = taught.at({kCode, 7, WL_LEARNED_BLOCK});
  runtime->alone = kCode + 0x25;
  teacher.teach(process(), std::vector<std::uint64_t>{(kCode + 0x26) | WL_FRAME_EXACT, kCode}, 2);
  EXPECT_EQ(taught.at({kCode, 7, WL_LEARNED_BLOCK}).rule.cfa_offset, before.rule.cfa_offset);
}

constexpr std::uint64_t head(std::uint64_t frame, std::uint64_t count) { return frame | count << 32; }

TEST_F(TakenWordsTest, OtherCodeAtAnAddressIsAChange) {
  const std::vector<std::uint64_t> frames{(kCode + 0x45) | WL_FRAME_EXACT, kCode + 0x81, kCode};
  teacher.teach(process(), frames, 1);
  ASSERT_NE(teacher.lesson(process(), frames[1]), nullptr);
  EXPECT_EQ(teacher.lesson(process(), frames[1])->rule.cfa_offset, 16);
  EXPECT_EQ(teacher.lesson(process(), 0x1234), nullptr);
  EXPECT_EQ(teacher.changes(), 0U);
  runtime->other = 0;
  teacher.teach(process(), frames, 1'000'000'002);
  EXPECT_GT(teacher.changes(), 0U);
  EXPECT_EQ(teacher.lesson(process(), frames[1])->rule.cfa_offset, 32);
  runtime->unknown = kCode + 0x80;
  teacher.teach(process(), frames, 2'000'000'003);
  EXPECT_EQ(teacher.lesson(process(), frames[1]), nullptr) << "its runtime says no more";
}

TEST_F(TakenWordsTest, FunctionsAreThoseOfTheWords) {
  const std::vector<std::uint64_t> frames{kCode + 1, kInterpreter + 1, kInterpreter + 9, 0x1234};
  const std::vector<std::uint64_t> taken{head(1, 3), 40, 2, 1, head(2, 3), 50, 3, 1};
  EXPECT_EQ(words.functions({1, frames, taken}, process(), teacher), (std::vector<std::uint64_t>{0, 42, 53, 0}));
  EXPECT_TRUE(words.functions({1, frames, {}}, process(), teacher).empty());
}

TEST_F(TakenWordsTest, EqualWordsAreAskedForOnceInAWindow) {
  const std::vector<std::uint64_t> frames{kInterpreter + 1};
  const std::vector<std::uint64_t> first{head(0, 3), 40, 2, 1}, silent{head(0, 3), 40, 2, 9},
      other{head(0, 3), 41, 2, 1};
  (void)words.functions({1, frames, first}, process(), teacher);
  (void)words.functions({2, frames, silent}, process(), teacher);
  EXPECT_EQ(runtime->asked, 1) << "they differ in a word that does not tell stacks apart";
  (void)words.functions({2, frames, other}, process(), teacher);
  EXPECT_EQ(runtime->asked, 2);
  (void)words.functions({2, frames, first}, process(8), teacher);
  EXPECT_EQ(runtime->asked, 3) << "another process";
  (void)words.functions({std::uint64_t{1} << WL_LEARNED_WINDOW_SHIFT, frames, first}, process(), teacher);
  EXPECT_EQ(runtime->asked, 4) << "the memory may have been used again";
}

TEST_F(TakenWordsTest, WordsThatContradictThemselvesAreLeftOut) {
  const std::vector<std::uint64_t> frames{kInterpreter + 1, kInterpreter + 1, 0x1234};
  const auto functions = [&](const std::vector<std::uint64_t>& taken) {
    return words.functions({1, frames, taken}, process(), teacher);
  };
  EXPECT_TRUE(functions({head(3, 3), 40, 2, 1}).empty()) << "there is no such frame";
  EXPECT_TRUE(functions({head(0, 4), 40, 2, 1}).empty()) << "there are fewer words";
  EXPECT_TRUE(functions({head(0, 0xffffffff), 40}).empty());
  EXPECT_TRUE(functions({head(0, 2), 40, 2}).empty()) << "the frame has another number of words";
  EXPECT_TRUE(functions({head(2, 3), 40, 2, 1}).empty()) << "of a file";
  EXPECT_EQ(functions({head(0, 2), 40, 2, head(1, 3), 40, 2, 1}), (std::vector<std::uint64_t>{0, 42, 0}));
}

}  // namespace
}  // namespace windlass::profiler
