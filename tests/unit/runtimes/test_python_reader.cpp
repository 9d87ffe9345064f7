// What CPython's threads run and what its code objects say, in memory made up by hand: whole, changed, lying.
#include <gtest/gtest.h>

#include <random>

#include "manager/interpreter.h"
#include "runtimes/interpreted_frames.h"
#include "runtimes/python/names.h"
#include "support/fake_python.h"

namespace windlass::runtimes::python {
namespace {

namespace fake = test::fake_python;

TEST(PythonReader, AThreadsFramesInnermostFirst) {
  const fake::FakeMemory memory = fake::make();
  const auto frames = read_frames(memory, fake::layout().interpreter, {fake::kPointer, 0});
  ASSERT_TRUE(frames) << frames.error().text();
  ASSERT_EQ(frames->size(), 3U);
  EXPECT_EQ((*frames)[0].code, fake::kCode);
  EXPECT_EQ((*frames)[1].code, fake::kOtherCode | WL_INTERPRETED_LAST);
  EXPECT_EQ((*frames)[2].code, fake::kCode | WL_INTERPRETED_LAST);
  EXPECT_EQ((*frames)[0].identity, fake::kVersion);
  EXPECT_EQ((*frames)[1].identity, fake::kVersion + 1);
  EXPECT_EQ((*frames)[0].place, fake::kPlace);
}

TEST(PythonReader, ThreadsThatRunNothingOrAreNotKnown) {
  fake::FakeMemory memory = fake::make();
  const wl_interpreter list = fake::layout().interpreter;
  EXPECT_FALSE(read_frames(memory, list, {fake::kOtherPointer, 0})) << "it has no frame";
  EXPECT_FALSE(read_frames(memory, list, {fake::kPointer + 8, 0}));
  EXPECT_FALSE(read_frames(memory, list, {0, 0}));
  memory.put(fake::kThread + 136, fake::kOtherPointer);
  memory.put(fake::kOtherThread + 136, fake::kPointer);
  memory.put(fake::kOtherThread + 56, fake::kOutermost);
  const auto frames = read_frames(memory, list, {fake::kPointer, 0});
  ASSERT_TRUE(frames);
  EXPECT_EQ(frames->size(), 1U) << "the second thread's";
}

TEST(PythonReader, SeveralInterpretersAreNotGuessedAt) {
  fake::FakeMemory memory = fake::make();
  memory.put(fake::kInterpreter, fake::kInterpreter);
  EXPECT_FALSE(read_frames(memory, fake::layout().interpreter, {fake::kPointer, 0}));
}

TEST(PythonReader, AListThatCannotBeReadToItsEndIsNone) {
  const wl_interpreter list = fake::layout().interpreter;
  for (const std::uint64_t previous :
       {fake::kInner, fake::kShim - 1, fake::kBase + fake::kSize - 8, std::uint64_t{8}}) {
    fake::FakeMemory memory = fake::make();
    memory.put(fake::kOuter + 8, previous);  // itself and what called it again; the middle of things; nowhere
    EXPECT_FALSE(read_frames(memory, list, {fake::kPointer, 0})) << previous;
  }
  fake::FakeMemory threads = fake::make();
  threads.put(fake::kOtherThread + 8, fake::kThread);
  EXPECT_FALSE(read_frames(threads, list, {fake::kPointer + 8, 0})) << "threads in a circle";
  fake::FakeMemory numberless = fake::make();
  numberless.put(fake::kCode + 92, std::uint32_t{0});
  EXPECT_FALSE(read_frames(numberless, list, {fake::kPointer, 0})) << "CPython has no more numbers to give";
}

TEST(PythonReader, ACodeObjectSaysWhatItIs) {
  const fake::FakeMemory memory = fake::make();
  const wl_interpreted_frame frame{fake::kCode | WL_INTERPRETED_LAST, fake::kVersion, 4};
  const auto name = read_name(memory, fake::layout(), frame);
  ASSERT_TRUE(name) << name.error().text();
  EXPECT_EQ(name->name, "Class.method");
  EXPECT_EQ(name->file, "/some/file.py");
  EXPECT_EQ(name->line, 12U);
}

TEST(PythonReader, WhatIsNoLongerTheFramesHasNoName) {
  const wl_interpreted_frame frame{fake::kCode, fake::kVersion, 4};
  const auto has_name = [&](auto&& change) {
    fake::FakeMemory memory = fake::make();
    change(memory);
    return read_name(memory, fake::layout(), frame).has_value();
  };
  EXPECT_TRUE(has_name([](auto&) {}));
  EXPECT_FALSE(has_name([](auto& memory) { memory.put(fake::kCode + 92, fake::kVersion + 9); })) << "another's";
  EXPECT_FALSE(has_name([](auto& memory) { memory.put(fake::kCode, std::int64_t{0}); })) << "freed";
  EXPECT_FALSE(has_name([](auto& memory) { memory.put(fake::kCode, fake::kCode + 0x7f0000000000); })) << "in a list";
  EXPECT_FALSE(has_name([](auto& memory) { memory.put(fake::kCode + 8, fake::kStringType); })) << "another kind";
  EXPECT_FALSE(has_name([](auto& memory) { memory.put(fake::kName + 8, fake::kCodeType); }));
  EXPECT_FALSE(has_name([](auto& memory) { memory.put(fake::kName + 16, ~std::uint64_t{0}); })) << "no such length";
  EXPECT_FALSE(has_name([](auto& memory) { memory.put(fake::kName + 32, std::uint32_t{0}); })) << "no such text";
}

// Before 3.12 code objects have no numbers.
TEST(PythonReader, IdentityIsWhatIsShownAndWhereItAllIs) {
  const wl_interpreter list = fake::layout(false).interpreter;
  const auto identity = [&](auto&& change) {
    fake::FakeMemory memory = fake::make();
    change(memory);
    const auto frames = read_frames(memory, list, {fake::kPointer, 0});
    EXPECT_TRUE(frames);
    return frames ? frames->front().identity : 0;
  };
  const std::uint32_t before = identity([](auto&) {});
  EXPECT_EQ(identity([](auto& memory) { memory.put(fake::kCode + 48, std::uint64_t{99}); }), before) << "a counter";
  EXPECT_EQ(identity([](auto& memory) { memory.put(fake::kCode, std::int64_t{99}); }), before) << "references";
  EXPECT_NE(identity([](auto& memory) { memory.put(fake::kCode + 68, std::uint32_t{11}); }), before) << "its line";
  EXPECT_NE(identity([](auto& memory) { memory.put(fake::kName + 24, std::uint64_t{1}); }), before) << "its name";
  EXPECT_NE(identity([](auto& memory) { memory.put(fake::kFile + 24, std::uint64_t{1}); }), before) << "its file";
  EXPECT_NE(identity([](auto& memory) { memory.put(fake::kLines + 33, std::uint8_t{1}); }), before) << "its lines";
}

TEST(PythonReader, TablesOfLinesThatEndTooSoon) {
  const std::uint8_t bytes[] = {0x80 | 14 << 3, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f};
  for (std::size_t size = 0; size <= sizeof bytes; ++size)
    for (const Lines lines : {Lines::kLnotab, Lines::kLinetable, Lines::kLocations})
      (void)line_at(lines, ByteView(std::span(bytes, size)), 1, 100);
  EXPECT_EQ(line_at(Lines::kLocations, ByteView(), 7, 0), 0U);
  EXPECT_EQ(line_at(Lines::kLocations, ByteView(), 7, -2), 7U) << "not begun";
  const std::uint8_t lnotab[] = {4, 2, 4, 0xff};
  EXPECT_EQ(line_at(Lines::kLnotab, ByteView(std::span(lnotab)), 10, 3), 10U);
  EXPECT_EQ(line_at(Lines::kLnotab, ByteView(std::span(lnotab)), 10, 4), 12U);
  EXPECT_EQ(line_at(Lines::kLnotab, ByteView(std::span(lnotab)), 10, 8), 11U);
  const std::uint8_t linetable[] = {4, 2, 4, 0x80, 4, 0xff};
  EXPECT_EQ(line_at(Lines::kLinetable, ByteView(std::span(linetable)), 10, 1), 12U);
  EXPECT_EQ(line_at(Lines::kLinetable, ByteView(std::span(linetable)), 10, 3), 0U) << "without a line";
  EXPECT_EQ(line_at(Lines::kLinetable, ByteView(std::span(linetable)), 10, 5), 11U);
}

TEST(PythonReader, LocationsWithoutALineAndWithLargeNumbers) {
  constexpr std::uint8_t kNoLine[] = {0x80 | 15 << 3};
  EXPECT_EQ(line_at(Lines::kLocations, ByteView(std::as_bytes(std::span(kNoLine)).data(), 1), 7, 0), 0U);
  constexpr std::uint8_t kFar[] = {0x80 | 13 << 3, 0x44, 0x01};  // 4 and 1 << 6, of which half are lines
  EXPECT_EQ(line_at(Lines::kLocations, ByteView(std::as_bytes(std::span(kFar)).data(), sizeof kFar), 1, 0), 35U);
}

TEST(PythonReader, MemoryThatChangesAtRandom) {
  std::mt19937 random(5);  // NOLINT(bugprone-random-generator-seed): the same each time
  std::size_t named = 0;
  for (int round = 0; round < 20000; ++round) {
    fake::FakeMemory memory = fake::make();
    for (std::size_t i = random() % 8; i-- > 0;)
      memory.bytes[random() % 0x1b00] ^= static_cast<std::uint8_t>(1U << random() % 8);
    for (const bool versions : {true, false}) {
      const Layout layout = fake::layout(versions);
      const auto frames = read_frames(memory, layout.interpreter, {fake::kPointer, 0});
      if (!frames) continue;
      EXPECT_LE(frames->size(), WL_MAX_INTERPRETED_FRAMES);
      for (std::size_t i = 0; i < std::min<std::size_t>(frames->size(), 8); ++i)
        named += read_name(memory, layout, (*frames)[i]).has_value() ? 1 : 0;
    }
  }
  EXPECT_GT(named, 10000U);
}

// ---- laid over the native stack
// ---------------------------------------------------------------------------------------

class Evaluator final : public manager::Interpreter {
 public:
  bool is_evaluator(std::uint64_t address) const override { return address >= 100 && address < 200; }
  bool is_linking(std::uint64_t address) const override { return address == 100; }
  Expected<std::vector<manager::InterpretedFrame>> frames_of(const Memory&,
                                                             const manager::ThreadStack&) const override {
    return {};
  }
  Expected<source::NamedFunction> name_of(const Memory&, const manager::InterpretedFrame&) const override { return {}; }
};

std::vector<std::size_t> laid(const std::vector<std::uint64_t>& native, const std::vector<bool>& last) {
  std::vector<manager::InterpretedFrame> frames;
  for (const bool it : last) frames.push_back({it ? WL_INTERPRETED_LAST : 0, 0, 0});
  std::vector<std::size_t> flat;
  for (const manager::Activation& activation : manager::lay_over(Evaluator(), native, frames))
    flat.insert(flat.end(), {activation.native, activation.begin, activation.end});
  return flat;
}

using Flat = std::vector<std::size_t>;

TEST(LayOver, EachActivationHasItsNativeFrame) {
  EXPECT_EQ(laid({1, 150, 2, 150, 3}, {false, true, true}), (Flat{1, 0, 2, 3, 2, 3}));
}

TEST(LayOver, OneThatHasNotLinkedYetIsTheInnermost) {
  EXPECT_EQ(laid({1, 150, 2, 150, 3}, {false, true}), (Flat{3, 0, 2}));
}

TEST(LayOver, WhatDoesNotFitIsNotLaid) {
  EXPECT_EQ(laid({1, 150, 3}, {true, true}), Flat()) << "more than the stack has";
  EXPECT_EQ(laid({150, 150, 150}, {true}), Flat()) << "two fewer";
  EXPECT_EQ(laid({150}, {true, false}), Flat()) << "an activation without an end";
  EXPECT_EQ(laid({100, 150}, {true, true}), Flat()) << "the list is being changed";
  EXPECT_EQ(laid({1, 2}, {true}), Flat());
  EXPECT_EQ(laid({150}, {}), Flat());
}

}  // namespace
}  // namespace windlass::runtimes::python
