// The functions that Ruby's threads run and their names, in memory made up by hand: whole, changed, lying.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "runtimes/interpreted_frames.h"
#include "runtimes/ruby/names.h"
#include "support/fake_ruby.h"
#include "support/made_up_image.h"

namespace windlass::runtimes::ruby {
namespace {

namespace fake = test::fake_ruby;
constexpr manager::ThreadStack kThread{fake::kPointer, fake::kSp};

auto frames_of(const Memory& memory, const manager::ThreadStack& thread = kThread) {
  return read_frames(memory, fake::layout().interpreter, thread);
}

TEST(RubyReader, AThreadsFramesInnermostFirst) {
  const fake::FakeMemory memory = fake::make();
  const auto frames = frames_of(memory);
  ASSERT_TRUE(frames) << frames.error().text();
  ASSERT_EQ(frames->size(), 4U) << "neither what C gave as a block, nor what C has called, nor the machine's own";
  EXPECT_EQ((*frames)[0].code, fake::kMethod);
  EXPECT_EQ((*frames)[0].place, WL_NO_PLACE);
  EXPECT_EQ((*frames)[1].code, fake::kBlock | WL_INTERPRETED_LAST);
  EXPECT_EQ((*frames)[1].place, fake::kPlace);
  EXPECT_EQ((*frames)[2].code, fake::kMethod);
  EXPECT_EQ((*frames)[3].code, fake::kMain | WL_INTERPRETED_LAST);
  EXPECT_EQ((*frames)[3].place, 1U);
}

template <typename T>
bool has_frames_with(std::uint64_t at, T value) {
  fake::FakeMemory memory = fake::make();
  memory.put(at, value);
  return frames_of(memory).has_value();
}

TEST(RubyReader, AContextOfAnotherStackIsNone) {
  const fake::FakeMemory memory = fake::make();
  EXPECT_TRUE(frames_of(memory, {fake::kPointer, fake::kMachineStack - 0x8000}));
  EXPECT_FALSE(frames_of(memory, {fake::kPointer, fake::kMachineStack - 0x8001})) << "below it";
  EXPECT_FALSE(frames_of(memory, {fake::kPointer, fake::kMachineStack + 8})) << "above it";
  EXPECT_FALSE(frames_of(memory, {0, fake::kSp}));
  EXPECT_FALSE(has_frames_with(fake::kModule, std::uint64_t{0})) << "not linked yet";
  EXPECT_FALSE(has_frames_with(fake::kVector + 48, ~std::uint64_t{0})) << "no storage yet";
  EXPECT_FALSE(has_frames_with(fake::kStorage + 8, std::uint64_t{0})) << "nothing runs";
}

TEST(RubyReader, FramesThatCannotBeReadToTheirEndAreNone) {
  EXPECT_TRUE(has_frames_with(fake::kContext + 0x10, fake::kFrames + 0x40));
  EXPECT_FALSE(has_frames_with(fake::kContext + 0x10, fake::kFrames + 8)) << "between two";
  EXPECT_FALSE(has_frames_with(fake::kContext + 0x10, fake::kEnd));
  EXPECT_FALSE(has_frames_with(fake::kContext + 0x10, fake::kStack - 0x40));
  EXPECT_FALSE(has_frames_with(fake::kContext + 8, std::uint64_t{1} << 40));
  EXPECT_FALSE(has_frames_with(fake::kFrames + 0x40, fake::kEncoded + 8 * (fake::kInstructions + 1)))
      << "behind the instructions";
  EXPECT_FALSE(has_frames_with(fake::kFrames + 0x40 + 16, fake::kMethod)) << "no instructions";
  EXPECT_FALSE(has_frames_with(fake::kFrames + 0x40 + 32, std::uint64_t{8})) << "an environment nowhere";
  EXPECT_TRUE(has_frames_with(fake::kBodies + 280, std::uint64_t{2})) << "MJIT has not compiled it";
  EXPECT_FALSE(has_frames_with(fake::kBodies + 280, std::uint64_t{0x7f0000001000})) << "MJIT has";
  EXPECT_FALSE(has_frames_with(fake::kBodies + 304, std::uint64_t{0x7f0000001000})) << "YJIT has";
  EXPECT_FALSE(has_frames_with(fake::kMethod, std::uint64_t{0x1a | 2 << 12})) << "no method";
}

TEST(RubyReader, NamesFilesAndLines) {
  const fake::FakeMemory memory = fake::make();
  const auto frames = frames_of(memory);
  ASSERT_TRUE(frames);
  const auto named = [&](std::size_t i) { return read_name(memory, fake::layout(), (*frames)[i]).value(); };
  EXPECT_EQ(named(0).name, "each_with_index");
  EXPECT_EQ(named(0).file, "<cfunc>");
  EXPECT_EQ(named(1).name, "block (2 levels) in through_blocks");
  EXPECT_EQ(named(1).file, "/some/file.rb");
  EXPECT_EQ(named(1).line, 30U);
  EXPECT_EQ(named(3).name, "<main>");
  EXPECT_EQ(named(3).line, 10U);
}

TEST(RubyReader, LaterReleasesHaveOtherStructures) {
  for (const int minor : {2, 3}) {
    fake::FakeMemory memory = fake::make(minor);
    const auto layout = fake::layout(minor);
    const auto frames = read_frames(memory, layout.interpreter, kThread);
    ASSERT_TRUE(frames) << frames.error().text();
    ASSERT_EQ(frames->size(), 4U);
    const auto named = [&](std::size_t i) { return read_name(memory, layout, (*frames)[i]).value(); };
    EXPECT_EQ(named(0).name, "each_with_index");
    EXPECT_EQ(named(1).name, "block (2 levels) in through_blocks");
    EXPECT_EQ(named(1).file, "/some/file.rb");
    EXPECT_EQ(named(1).line, 30U);
    EXPECT_EQ(named(3).name, "<main>");
    memory.put(fake::kTexts + 0x180, std::uint64_t{5 | 1 << 17});
    EXPECT_EQ(named(1).file, "/some/file.rb") << "a flag that is set later";
    memory.put(fake::kTexts + 0x180 + 16, std::uint64_t{12});
    EXPECT_FALSE(read_name(memory, layout, (*frames)[1])) << "another length";
    memory.put(fake::kTexts + 0x180 + 16, ~std::uint64_t{0});
    EXPECT_FALSE(read_name(memory, layout, (*frames)[1])) << "no such length";
    memory = fake::make(minor);
    memory.put(fake::kBodies + 288 + 16, std::uint64_t{1});
    EXPECT_EQ(read_frames(memory, layout.interpreter, kThread).has_value(), minor == 2) << "RJIT has compiled it";
    memory.put(fake::kBodies + 288, std::uint64_t{0x7f0000001000});
    EXPECT_FALSE(read_frames(memory, layout.interpreter, kThread)) << "a function of a compiler's";
    memory = fake::make(minor);
    auto with_yjit = layout.interpreter;
    with_yjit.ruby.compiled_third = 5;
    EXPECT_TRUE(read_frames(memory, with_yjit, kThread));
    memory.put(fake::kBodies + 288 + 40, std::uint64_t{0x7f0000001000});
    EXPECT_FALSE(read_frames(memory, with_yjit, kThread)) << "YJIT has compiled it";
  }
}

TEST(RubyReader, LinesAreOfTheInstructionBefore) {
  const fake::FakeMemory memory = fake::make();
  auto frame = (*frames_of(memory))[1];
  const auto line = [&](std::uint32_t place) {
    frame.place = place;
    return read_name(memory, fake::layout(), frame)->line;
  };
  EXPECT_EQ(line(0), 10U) << "not begun";
  EXPECT_EQ(line(3), 10U);
  EXPECT_EQ(line(4), 20U);
  EXPECT_EQ(line(54), 20U) << "the last position in words of nine";
  EXPECT_EQ(line(55), 20U);
  EXPECT_EQ(line(58), 20U);
  EXPECT_EQ(line(59), 30U);
  EXPECT_EQ(line(118), 30U) << "in the block's second word";
  EXPECT_EQ(line(130), 30U);
  EXPECT_EQ(line(131), 40U);
}

TEST(RubyReader, ALineBehindTheTableIsNone) {
  fake::FakeMemory memory = fake::make();
  memory.put(fake::kBodies + 136, std::uint32_t{2});
  const auto frames = frames_of(memory);
  ASSERT_TRUE(frames);
  const auto named = read_name(memory, fake::layout(), (*frames)[1]);
  ASSERT_TRUE(named);
  EXPECT_EQ(named->line, 0U);
}

TEST(RubyReader, WhatIsNoLongerTheFramesHasNoName) {
  const auto frames = frames_of(fake::make());
  const auto has_name = [&](std::size_t i, std::uint64_t at, std::uint64_t value) {
    fake::FakeMemory memory = fake::make();
    memory.put(at, value);
    return read_name(memory, fake::layout(), (*frames)[i]).has_value();
  };
  EXPECT_TRUE(has_name(1, fake::kBase + 8, 0));
  EXPECT_TRUE(has_name(1, fake::kBodies + 16, 1)) << "a flag that is set later";
  EXPECT_FALSE(has_name(1, fake::kBlock, 0)) << "freed";
  EXPECT_FALSE(has_name(1, fake::kBlock + 16, fake::kBodies + 0x200)) << "another's";
  EXPECT_FALSE(has_name(1, fake::kBodies + 8, fake::kEncoded + 8)) << "other instructions";
  EXPECT_FALSE(has_name(1, fake::kBodies + 96, 7)) << "another place in the file";
  EXPECT_FALSE(has_name(1, fake::kTexts + 64, 0x6161616161616161)) << "another label";
  EXPECT_FALSE(has_name(1, fake::kTexts + 0x180 + 16, 0x6161616161616161)) << "another path";
  EXPECT_FALSE(has_name(1, fake::kTexts, 7)) << "no text";
  EXPECT_FALSE(has_name(1, fake::kTexts + 16, ~std::uint64_t{0})) << "no such length";
  EXPECT_FALSE(has_name(0, fake::kMethod + 24, 5)) << "another method";
  EXPECT_FALSE(has_name(0, fake::kDefinition + 32, 9000 << 4)) << "no such identifier";
  EXPECT_FALSE(has_name(0, fake::kIds + 16, 1)) << "right behind the last";
  EXPECT_FALSE(has_name(0, fake::kIds + 0x300 + std::uint64_t{600 % 512} * 16, 8)) << "nil";
}

// ---- what it exports ---------------------------------------------------------------------------------------------

constexpr std::uint64_t kImage = fake::kBase, kVersion = kImage + 0x800, kModuleNumber = kImage + 0x900;
constexpr std::uint64_t kCount = kImage + 0xa00, kTable = kImage + 0x1000;

test::MadeUpMemory exports(bool is_library = true) {
  test::MadeUpMemory memory(fake::kBase, fake::kSize);
  test::MadeUpImage image;
  image.add("ruby_api_version", kVersion), image.add("rb_sym_immortal_count", kCount);
  if (is_library) image.add_thread_local("ruby_current_ec", 0x30, kModuleNumber);
  image.put(memory, kImage);
  memory.put(kVersion, 3), memory.put(kVersion + 4, 1), memory.put(kVersion + 8, 2);
  // mov eax, [rip + N]; ret
  memory.put(kCount, std::uint16_t{0x058b}), memory.put(kCount + 2, static_cast<std::uint32_t>(kTable - (kCount + 6)));
  memory.put(kCount + 6, std::uint8_t{0xc3});
  return memory;
}

template <typename T>
bool is_refused_with(std::uint64_t at, T value) {
  test::MadeUpMemory memory = exports();
  memory.put(at, value);
  const auto layout = read_layout(memory, kImage, kVersion);
  return !layout && layout.error().code == ErrorCode::kUnsupported;
}

TEST(RubyReader, FindsItsThreadsContextsAndIdentifiers) {
  const auto layout = read_layout(exports(), kImage, kVersion);
  ASSERT_TRUE(layout) << layout.error().text();
  EXPECT_EQ(layout->symbols, kTable);
  EXPECT_EQ(layout->interpreter.kind, WL_RUBY);
  EXPECT_EQ(layout->interpreter.ruby.module, kModuleNumber);
  EXPECT_EQ(layout->interpreter.ruby.context, 0x30U);
}

TEST(RubyReader, FindsWhatLaterReleasesDoNotExport) {
  test::MadeUpMemory memory(fake::kBase, fake::kSize);
  constexpr std::uint64_t kErrinfo = kImage + 0xb00, kIndexAt = kImage + 0xc00;
  test::MadeUpImage image;
  image.add("ruby_api_version", kVersion), image.add("rb_sym_immortal_count", kCount);
  image.add("rb_errinfo", kErrinfo);
  image.put(memory, kImage);
  memory.put(kVersion, 3), memory.put(kVersion + 4, 3);
  memory.put_bytes(kImage + 0xd00, "Ruby was built without YJIT support.");
  constexpr std::uint32_t kMark = 0xfa1e0ff3;  // endbr64
  memory.put(kCount, kMark), memory.put(kCount + 4, std::uint16_t{0x058b});
  memory.put(kCount + 6, static_cast<std::uint32_t>(kTable - (kCount + 10)));
  memory.put(kCount + 10, std::uint8_t{0xc3});
  memory.put(kErrinfo, kMark);
  memory.put(kErrinfo + 4, std::uint64_t{0x3d8d'4866'08ec'8348});
  memory.put(kErrinfo + 12, static_cast<std::uint32_t>(kIndexAt - (kErrinfo + 16)));
  memory.put(kErrinfo + 16, std::uint32_t{0xe848'6666});
  memory.put(kErrinfo + 24, std::uint32_t{0x48'008b'48});
  memory.put(kIndexAt, std::uint64_t{1}), memory.put(kIndexAt + 8, std::uint64_t{0x10});
  const auto layout = read_layout(memory, kImage, kVersion);
  ASSERT_TRUE(layout) << layout.error().text();
  EXPECT_EQ(layout->symbols, kTable);
  EXPECT_EQ(layout->interpreter.ruby.module, kIndexAt);
  EXPECT_EQ(layout->interpreter.ruby.context, 0x10U);
  EXPECT_EQ(layout->interpreter.ruby.frame_bytes, 56U);
  EXPECT_EQ(layout->lines, 112U);
  EXPECT_EQ(layout->interpreter.ruby.compiled_second, 2U);
  EXPECT_EQ(layout->interpreter.ruby.compiled_third, 0U);
  memory.put(kImage + 0xd00, std::uint64_t{0});
  EXPECT_EQ(read_layout(memory, kImage, kVersion)->interpreter.ruby.compiled_third, 5U) << "built with YJIT";
  memory.put(kErrinfo + 4, std::uint32_t{0xe589'4855});  // push rbp; mov rbp, rsp
  EXPECT_EQ(read_layout(memory, kImage, kVersion).error().code, ErrorCode::kUnsupported) << "does not pop it";
  memory.put(kErrinfo + 24, std::uint32_t{0x00'8b48'5d});
  const auto framed = read_layout(memory, kImage, kVersion);
  ASSERT_TRUE(framed) << "built with frame pointers: " << framed.error().text();
  EXPECT_EQ(framed->interpreter.ruby.module, kIndexAt);
  EXPECT_EQ(framed->interpreter.ruby.context, 0x10U);
  memory.put(kErrinfo + 4, std::uint32_t{0x08ec'8348});
  EXPECT_EQ(read_layout(memory, kImage, kVersion).error().code, ErrorCode::kUnsupported) << "pops what it did not push";
  memory.put(kErrinfo + 24, std::uint32_t{0x48'008b'48});
  EXPECT_TRUE(read_layout(memory, kImage, kVersion));
  memory.put(kErrinfo + 16, std::uint32_t{0xe848'6690});
  EXPECT_EQ(read_layout(memory, kImage, kVersion).error().code, ErrorCode::kUnsupported) << "other code";
}

// 3.3 does not export rb_vm_exec, but rb_iseq_eval, which jumps there. Its size is in the unwind information.
TEST(RubyReader, FindsTheEvaluatorThatIsNotExported) {
  constexpr std::uint64_t kEval = kImage + 0xb00, kVmExec = kImage + 0x1800, kIndex = kImage + 0xc00;
  constexpr std::uint64_t kCie = kImage + 0xd00, kFde = kCie + 24, kSize = 0x123;
  const auto distance = [](std::uint64_t to, std::uint64_t from) { return static_cast<std::uint32_t>(to - from); };
  test::MadeUpMemory memory(fake::kBase, fake::kSize);
  test::MadeUpImage image;
  image.add("rb_iseq_eval", kEval, 16);
  image.set_unwind_index(kIndex, 20);
  image.put(memory, kImage);
  for (std::uint64_t at = kEval; at < kEval + 16; ++at) memory.put(at, std::uint8_t{0x90});
  memory.put(kEval, std::uint8_t{0x53}), memory.put(kEval + 3, std::uint8_t{0x5b});  // push rbx; pop rbx
  memory.put(kEval + 4, std::uint8_t{0xe9}), memory.put(kEval + 5, distance(kVmExec, kEval + 9));
  memory.put(kIndex, std::uint32_t{0x3b031b01});  // version 1; pcrel sdata4, udata4, datarel sdata4
  memory.put(kIndex + 4, distance(kCie, kIndex + 4)), memory.put(kIndex + 8, std::uint32_t{1});
  memory.put(kIndex + 12, distance(kVmExec, kIndex)), memory.put(kIndex + 16, distance(kFde, kIndex));
  memory.put(kCie, std::array<std::uint8_t, 24>{20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b});
  memory.put(kFde, std::uint32_t{16}), memory.put(kFde + 4, distance(kFde + 4, kCie));
  memory.put(kFde + 8, distance(kVmExec, kFde + 8)), memory.put(kFde + 12, static_cast<std::uint32_t>(kSize));
  const auto found = find_vm_exec(memory, kImage);
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_EQ(found->hot.begin, kVmExec);
  EXPECT_EQ(found->hot.end, kVmExec + kSize);
  const auto why_not = [&] { return find_vm_exec(memory, kImage).error().code; };
  memory.put(kFde + 8, distance(kVmExec + 1, kFde + 8));
  EXPECT_EQ(why_not(), ErrorCode::kMalformed) << "in another form";
  memory.put(kEval + 9, std::uint8_t{0xe9}), memory.put(kEval + 10, distance(kVmExec + 8, kEval + 14));
  EXPECT_EQ(why_not(), ErrorCode::kUnsupported) << "jumps to two";
  memory.put(kEval + 4, std::uint8_t{0xe8}), memory.put(kEval + 9, std::uint8_t{0xe8});
  EXPECT_EQ(why_not(), ErrorCode::kUnsupported) << "jumps nowhere";
  memory.put(kEval, std::uint8_t{0x06});
  EXPECT_EQ(why_not(), ErrorCode::kUnsupported) << "no code";
}

TEST(RubyReader, AnotherRubyIsRefused) {
  EXPECT_FALSE(is_refused_with(kVersion + 8, 7)) << "another release of 3.1";
  EXPECT_TRUE(is_refused_with(kVersion, 2));
  EXPECT_TRUE(is_refused_with(kVersion + 4, 4));
  EXPECT_TRUE(is_refused_with(kCount, std::uint8_t{0x89})) << "a store";
  EXPECT_TRUE(is_refused_with(kCount + 1, std::uint8_t{0x0d})) << "into another register";
  EXPECT_TRUE(is_refused_with(kCount + 6, std::uint8_t{0x90})) << "goes on";
  EXPECT_TRUE(is_refused_with(kImage + 18, std::uint16_t{EM_AARCH64}));
  const auto program = read_layout(exports(false), kImage, kVersion);
  EXPECT_EQ(program.error().code, ErrorCode::kUnsupported) << "its variables are found in another way";
}

TEST(RubyReader, MemoryThatChangesAtRandom) {
  std::mt19937 random(5);  // NOLINT(bugprone-random-generator-seed): the same each time
  std::size_t named = 0;
  for (int round = 0; round < 20000; ++round) {
    fake::FakeMemory memory = fake::make();
    for (std::size_t i = random() % 8; i-- > 0;)
      memory.bytes[random() % fake::kSize] ^= static_cast<std::uint8_t>(1U << random() % 8);
    const auto frames = frames_of(memory);
    if (!frames) continue;
    ASSERT_LE(frames->size(), WL_MAX_INTERPRETED_FRAMES);
    for (const auto& frame : *frames) named += read_name(memory, fake::layout(), frame).has_value() ? 1 : 0;
  }
  EXPECT_GT(named, 10000U);
}

}  // namespace
}  // namespace windlass::runtimes::ruby
