// The functions that CPython's threads run and the contents of its code objects, in memory made up by hand: whole,
// changed, lying.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <vector>

#include "runtimes/interpreted_frames.h"
#include "runtimes/interpreter.h"
#include "runtimes/python/names.h"
#include "support/fake_python.h"
#include "support/made_up_image.h"

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

TEST(PythonReader, NamesHaveCharactersOfEverySize) {
  const wl_interpreted_frame frame{fake::kCode | WL_INTERPRETED_LAST, fake::kVersion, 4};
  fake::FakeMemory memory = fake::make();
  const std::u32string text = U"\x7f\x80\u07ff\u0800\uffff\U00010000\U0010ffff";  // each form's first and last
  memory.put(fake::kName + 16, std::uint64_t{text.size()});
  memory.put(fake::kName + 32, std::uint32_t{4 << 2 | 1 << 5});  // four bytes a character, compact
  for (std::size_t i = 0; i < text.size(); ++i)
    memory.put(fake::kName + 56 + 4 * i, static_cast<std::uint32_t>(text[i]));
  const auto name = read_name(memory, fake::layout(), frame);
  ASSERT_TRUE(name) << name.error().text();
  EXPECT_EQ(name->name, "\x7f\u0080\u07ff\u0800\uffff\U00010000\U0010ffff");
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

// It changes when something has been read so many times.
class ChangingMemory final : public Memory {
 public:
  ChangingMemory(fake::FakeMemory& memory, unsigned reads) : memory_(memory), left_(reads) {}
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    if (left_-- == 0) memory_.put(fake::kCode + 92, fake::kVersion + 9);  // another code object by now
    return memory_.read(address, to, size);
  }

 private:
  fake::FakeMemory& memory_;
  mutable unsigned left_;
};

TEST(PythonReader, WhatGoesWhileItIsReadHasNoName) {
  const wl_interpreted_frame frame{fake::kCode, fake::kVersion, 4};
  unsigned reads = 0;
  for (bool named = false; !named; ++reads) {
    fake::FakeMemory memory = fake::make();
    named = read_name(ChangingMemory(memory, reads), fake::layout(), frame).has_value();
    const auto version = memory.bytes[fake::kCode + 92 - fake::kBase];
    EXPECT_EQ(named, version == fake::kVersion) << "changed before read " << reads;
    ASSERT_LT(reads, 1000U);
  }
  EXPECT_GT(reads, 3U);
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

// ---- what 3.13 says of itself ------------------------------------------------------------------------------------

// Words of _Py_DebugOffsets.
enum Said : std::size_t {
  kCookie = 0,
  kSaidVersion = 1,
  kFreeThreaded = 2,
  kInterpreters = 5,
  kNextInterpreter = 8,
  kThreads = 9,
  kNextThread = 21,
  kCurrent = 23,
  kThreadId = 24,
  kPrevious = 29,
  kExecutable = 30,
  kPlaceInFrame = 31,
  kLocals = 32,
  kOwner = 33,
  kFileName = 35,
  kNameOfCode = 36,
  kQualname = 37,
  kLineTable = 38,
  kFirstLineOfCode = 39,
  kLocalNames = 41,
  kAdaptive = 43,
  kSaidWords = 44
};

class SaysItself {
 public:
  static constexpr std::uint64_t kImage = fake::kBase, kRuntime = kImage + 0x800, kVersionAt = kImage + 0xa00;

  SaysItself() : memory_(fake::kBase, fake::kSize) {
    test::MadeUpImage image;
    image.add("Py_Version", kVersionAt), image.add("_PyRuntime", kRuntime);
    image.add("PyCode_Type", kImage + 0xb00), image.add("PyUnicode_Type", kImage + 0xc00);
    image.put(memory_, kImage);
    memory_.put(kVersionAt, std::uint64_t{0x030d0100});
    std::array<std::uint64_t, kSaidWords> said{};
    std::memcpy(said.data(), "xdebugpy", 8);
    said[kSaidVersion] = 0x030d0100;
    said[kInterpreters] = 632, said[kNextInterpreter] = 7200, said[kThreads] = 7344, said[kNextThread] = 8;
    said[kCurrent] = 72, said[kThreadId] = 152, said[kPrevious] = 8, said[kExecutable] = 0, said[kPlaceInFrame] = 56;
    said[kLocals] = 80, said[kOwner] = 70, said[kFileName] = 112, said[kNameOfCode] = 120, said[kQualname] = 128;
    said[kLineTable] = 136, said[kFirstLineOfCode] = 68, said[kLocalNames] = 96, said[kAdaptive] = 200;
    memory_.put(kRuntime, said);
  }
  SaysItself& with(std::size_t word, std::uint64_t value) {
    memory_.put(kRuntime + word * 8, value);
    return *this;
  }
  SaysItself& of_version(std::uint64_t version) {
    memory_.put(kVersionAt, version);
    return *this;
  }
  [[nodiscard]] Expected<Layout> layout() const { return read_layout(memory_, kImage, kRuntime); }
  [[nodiscard]] bool is_refused() const {
    const auto made = layout();
    return !made && made.error().code == ErrorCode::kUnsupported;
  }

 private:
  test::MadeUpMemory memory_;
};

TEST(PythonReader, Of3_13WhatItSaysOfItself) {
  const auto layout = SaysItself().layout();
  ASSERT_TRUE(layout) << layout.error().text();
  const wl_python& list = layout->interpreter.python;
  EXPECT_EQ(layout->minor, 13U);
  EXPECT_EQ(list.interpreters, SaysItself::kRuntime + 632);
  EXPECT_EQ(list.next_interpreter, 7200U);
  EXPECT_EQ(list.threads, 7344U);
  EXPECT_EQ(SaysItself().with(kNextThread, 16).layout()->interpreter.python.next_thread, 16U);
  EXPECT_EQ(list.current, 72U);
  EXPECT_EQ(list.frame_size, 80U);
  EXPECT_EQ(list.code_version, 92U);
  EXPECT_EQ(list.code_begin, 200U);
  EXPECT_EQ(layout->code_type, SaysItself::kImage + 0xb00);
  EXPECT_EQ(layout->string_type, SaysItself::kImage + 0xc00);
}

// Sections of the description have grown, so that later ones begin behind where they did.
SaysItself of_3_14() {
  SaysItself says;
  says.of_version(0x030e0af0).with(kSaidVersion, 0x030e0af0);
  std::array<std::uint64_t, 50> said{};
  said[24] = 8, said[26] = 72, said[27] = 152;                              // next_thread, current, thread_id
  said[32] = 8, said[33] = 0, said[34] = 56, said[35] = 80, said[36] = 74;  // of a frame, as Debian's 3.14.10 has them
  said[40] = 112, said[41] = 120, said[42] = 128, said[43] = 136, said[44] = 68, said[46] = 96, said[48] = 208;
  for (std::size_t i = 10; i < said.size(); ++i) says.with(i, said[i]);
  return says;
}

TEST(PythonReader, Of3_14WhatItSaysOfItself) {
  const auto layout = of_3_14().layout();
  ASSERT_TRUE(layout) << layout.error().text();
  const wl_python& list = layout->interpreter.python;
  EXPECT_EQ(layout->minor, 14U);
  EXPECT_EQ(list.threads, 7344U);
  EXPECT_EQ(list.current, 72U);
  EXPECT_EQ(list.thread_id, 152U);
  EXPECT_EQ(list.frame_size, 80U);
  EXPECT_EQ(list.frame_mark, 74U);
  EXPECT_EQ(list.code_version, 92U);
  EXPECT_EQ(list.code_begin, 208U);
  EXPECT_EQ(layout->code_line, 68U);
  EXPECT_EQ(layout->code_qualname, 128U);
  EXPECT_TRUE(of_3_14().with(kFreeThreaded, 1).is_refused());
  EXPECT_TRUE(of_3_14().with(kSaidVersion, 0x030e00a7).is_refused()) << "before its form was settled";
  EXPECT_TRUE(of_3_14().with(kSaidVersion, 0x030f00f0).is_refused());
}

// The lowest bits of a frame's reference say who counts it.
TEST(PythonReader, AReferenceWithATagIsToTheSameObject) {
  fake::FakeMemory memory = fake::make();
  memory.put(fake::kInner, fake::kCode | 1);
  memory.put(fake::kOuter, fake::kOtherCode | 3);
  const auto frames = read_frames(memory, fake::layout().interpreter, {fake::kPointer, 0});
  ASSERT_TRUE(frames) << frames.error().text();
  EXPECT_EQ((*frames)[0].code, fake::kCode);
  EXPECT_EQ((*frames)[0].place, fake::kPlace);
  EXPECT_EQ((*frames)[1].code, fake::kOtherCode | WL_INTERPRETED_LAST);
}

// Flags stand above the count.
TEST(PythonReader, CountsOf3_14HaveFlags) {
  Layout layout = fake::layout();
  layout.count_flags = std::uint64_t{0xffff} << 48;
  const wl_interpreted_frame frame{fake::kCode, fake::kVersion, 4};
  fake::FakeMemory memory = fake::make();
  memory.put(fake::kName, std::uint64_t{0x50000c0000000});
  EXPECT_TRUE(read_name(memory, layout, frame));
  EXPECT_FALSE(read_name(memory, fake::layout(), frame)) << "before 3.14 it is no count";
  memory.put(fake::kName, std::uint64_t{0x5000000000000});
  EXPECT_FALSE(read_name(memory, layout, frame)) << "freed";
  memory.put(fake::kName, fake::kName + 0x7f0000000000);
  EXPECT_FALSE(read_name(memory, layout, frame)) << "in a list";
}

TEST(PythonReader, ADescriptionThatIsNotUnderstoodIsRefused) {
  EXPECT_TRUE(SaysItself().with(kCookie, 0).is_refused());
  EXPECT_TRUE(SaysItself().with(kSaidVersion, 0x030e0000).is_refused());
  EXPECT_TRUE(SaysItself().with(kFreeThreaded, 1).is_refused());
  EXPECT_TRUE(SaysItself().with(kFileName, 1 << 16 | 112).is_refused()) << "more than the field has room for";
  EXPECT_TRUE(SaysItself().with(kLocals, WL_INTERPRETER_FRAME_BYTES + 8).is_refused()) << "more than is kept of it";
  EXPECT_TRUE(SaysItself().with(kPlaceInFrame, 60).is_refused()) << "not aligned";
  EXPECT_TRUE(SaysItself().with(kPlaceInFrame, 80).is_refused()) << "behind the frame";
}

TEST(PythonReader, EachVersionHasALayoutAndOthersHaveNone) {
  for (const unsigned minor : {9U, 10U, 11U, 12U, 13U}) {
    const auto layout = SaysItself().of_version(0x03000000 | minor << 16).layout();
    ASSERT_TRUE(layout) << minor;
    EXPECT_EQ(layout->minor, minor);
  }
  EXPECT_TRUE(SaysItself().of_version(0x030e00f0).is_refused()) << "with 3.13's description";
  EXPECT_TRUE(SaysItself().of_version(0x030f0000).is_refused());
  EXPECT_TRUE(SaysItself().of_version(0x040b0000).is_refused());
}

// A function's instructions in runs of a line each, or of none. As CPython's own writers put them down (Objects/
// lnotab_notes.txt; locations.md), so that each place has its line again.
struct LineRun {
  std::uint32_t instructions;
  std::optional<std::uint32_t> line;
};

class LineTable {
 public:
  std::vector<std::uint8_t> bytes;

  // Pairs of 3.9 and before, which have a line for all code; of 3.10.
  void add_pairs(std::uint32_t size, std::int64_t lines, std::uint32_t most, bool lines_first) {
    const auto split_lines = [&](std::uint32_t first) {
      for (; lines > 127; lines -= 127, first = 0) add(first, 127);
      for (; lines < -127; lines += 127, first = 0) add(first, -127);
      return first;
    };
    if (lines_first) {
      (void)split_lines(0);
      for (; size > most; size -= most, lines = 0) add(most, lines);
    } else {
      for (; size > most; size -= most) add(most, 0);
      size = split_lines(size);
    }
    add(size, lines);
  }
  void add(std::uint32_t size, std::int64_t lines) {
    bytes.push_back(static_cast<std::uint8_t>(size));
    bytes.push_back(static_cast<std::uint8_t>(lines));
  }
  // 3.11 and later.
  void add_entry(unsigned kind, std::uint32_t instructions, std::int64_t lines, std::uint32_t column) {
    bytes.push_back(static_cast<std::uint8_t>(0x80 | kind << 3 | (instructions - 1)));
    if (kind < 10) bytes.push_back(static_cast<std::uint8_t>(column & 0x7f));
    if (kind >= 10 && kind <= 12) bytes.insert(bytes.end(), {0x11, 0x22});
    if (kind == 13 || kind == 14)
      add_varint(lines < 0 ? static_cast<std::uint64_t>(-lines) << 1 | 1 : static_cast<std::uint64_t>(lines) << 1);
    if (kind == 14)
      for (const std::uint32_t more : {column % 3, column, column + 1}) add_varint(more);
  }
  void add_varint(std::uint64_t value) {
    for (; value >= 64; value >>= 6) bytes.push_back(static_cast<std::uint8_t>(value & 63) | 64);
    bytes.push_back(static_cast<std::uint8_t>(value));
  }
  [[nodiscard]] ByteView view() const { return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}; }
};

TEST(PythonLines, EachPlaceHasItsLineInEveryForm) {
  std::mt19937 chance(5);
  for (unsigned round = 0; round < 100; ++round) {
    constexpr std::uint32_t kFirst = 100'000;
    std::vector<LineRun> runs;
    for (unsigned i = 0; i < 1 + round % 12; ++i) {
      const std::int64_t spread = round % 3 == 0 ? 3 : round % 3 == 1 ? 300 : 70'000;
      const auto line = static_cast<std::uint32_t>(kFirst + static_cast<std::int64_t>(chance()) % spread - spread / 2);
      runs.push_back({1 + static_cast<std::uint32_t>(chance() % (round % 5 == 0 ? 400 : 6)), line});
      if (i != 0 && chance() % 4 == 0) runs.back().line.reset();
    }
    LineTable pairs, ranges, locations;
    std::int64_t of_pairs = kFirst, of_ranges = kFirst, of_locations = kFirst;
    std::uint32_t before = 0;
    for (const LineRun& run : runs) {
      const std::int64_t line = run.line.value_or(static_cast<std::uint32_t>(of_pairs));
      pairs.add_pairs(before, line - of_pairs, 255, false);
      before = 2 * run.instructions;
      of_pairs = line;
      if (run.line) {
        ranges.add_pairs(2 * run.instructions, *run.line - of_ranges, 254, true);
        of_ranges = *run.line;
      } else {
        for (std::uint32_t size = 2 * run.instructions; size != 0; size -= std::min(size, 254u))
          ranges.add(std::min(size, 254u), -128);
      }
      for (std::uint32_t left = run.instructions; left != 0;) {
        const std::uint32_t taken = std::min(left, 1 + static_cast<std::uint32_t>(chance() % 8));
        left -= taken;
        const std::int64_t lines = run.line ? *run.line - of_locations : 0;
        unsigned kind = 13 + chance() % 2;
        if (!run.line)
          kind = 15;
        else if (lines == 0 && chance() % 2 == 0)
          kind = chance() % 10;
        else if (lines >= 0 && lines <= 2 && chance() % 2 == 0)
          kind = 10 + static_cast<unsigned>(lines);
        locations.add_entry(kind, taken, lines, chance() % 1000);
        if (run.line) of_locations = *run.line;
      }
    }
    std::uint32_t at = 0;
    std::uint32_t last = kFirst;
    for (const LineRun& run : runs) {
      last = run.line.value_or(last);
      for (std::uint32_t i = 0; i < run.instructions; ++i, ++at) {
        const auto place = static_cast<std::int32_t>(at);
        ASSERT_EQ(line_at(Lines::kLnotab, pairs.view(), kFirst, 2 * place), last) << round << " at " << at;
        ASSERT_EQ(line_at(Lines::kLinetable, ranges.view(), kFirst, place), run.line.value_or(0))
            << round << " at " << at;
        ASSERT_EQ(line_at(Lines::kLocations, locations.view(), kFirst, 2 * place), run.line.value_or(0))
            << round << " at " << at;
      }
    }
    const auto end = static_cast<std::int32_t>(at);
    EXPECT_EQ(line_at(Lines::kLinetable, ranges.view(), kFirst, end), 0u) << "behind the function";
    EXPECT_EQ(line_at(Lines::kLocations, locations.view(), kFirst, 2 * end), 0u) << "behind the function";
    for (const Lines form : {Lines::kLnotab, Lines::kLinetable, Lines::kLocations})
      EXPECT_EQ(line_at(form, pairs.view(), kFirst, -1), kFirst) << "the function has not begun";
  }
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
  Expected<sources::NamedFunction> name_of(const Memory&, const manager::InterpretedFrame&) const override {
    return {};
  }
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
