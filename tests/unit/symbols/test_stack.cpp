// Stacks with names, in one call.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "live_process.h"
#include "windlass/stack.h"

// Named by the tests: in no namespace, kept from being inlined, and not tail calls.
__attribute__((always_inline)) static inline windlass::NamedStack inlined_in_named_here(int* line) {
  *line = __LINE__ + 1;
  windlass::NamedStack stack = windlass::named_stack();
  return stack;
}
extern "C" __attribute__((noinline)) windlass::NamedStack windlass_test_named_here(int* line) {
  windlass::NamedStack stack = inlined_in_named_here(line);
  asm volatile("");
  return stack;
}
extern "C" __attribute__((noinline)) windlass::Expected<void> windlass_test_printed_here(int fd) {
  windlass::Expected<void> printed = windlass::print_stack(fd);
  asm volatile("");
  return printed;
}

namespace windlass {
namespace {

std::string function_of(const NamedFrame& frame) {
  return frame.names.frames.empty() ? "" : std::string(frame.names.frames.back().function);
}
bool has(const NamedStack& stack, const std::string& function) {
  return std::ranges::any_of(stack.frames, [&](const NamedFrame& frame) { return function_of(frame) == function; });
}

TEST(Stack, TheOwnBeginsWithTheCaller) {
  int line = 0;
  const NamedStack stack = windlass_test_named_here(&line);
  EXPECT_EQ(stack.end, WalkEnd::kComplete) << stack.error.text();
  EXPECT_EQ(stack.thread.id, static_cast<std::uint64_t>(::gettid()));
  ASSERT_FALSE(stack.frames.empty());
  EXPECT_EQ(function_of(stack.frames.front()), "windlass_test_named_here") << stack.text();
  EXPECT_TRUE(has(stack, "main")) << stack.text();
  std::uint64_t inner = reinterpret_cast<std::uint64_t>(&inner) / 4096 * 4096 - (std::uint64_t{1} << 20);
  for (const NamedFrame& frame : stack.frames) {
    EXPECT_EQ(frame.sp() % sizeof(void*), 0u);
    EXPECT_GE(frame.sp(), inner) << "callers are further up";
    inner = frame.sp();
  }
  for (const NamedFrame& frame : stack.frames) EXPECT_EQ(function_of(frame).find("named_stack"), std::string::npos);
}

TEST(Stack, InlinedCallsAndLinesAreInIt) {
  int line = 0;
  const NamedStack stack = windlass_test_named_here(&line);
  ASSERT_FALSE(stack.frames.empty());
  const std::vector<SourceFrame>& calls = stack.frames.front().names.frames;
  ASSERT_GE(calls.size(), 2U) << stack.text();
  const auto inlined = std::ranges::find_if(
      calls, [](const SourceFrame& call) { return call.function.starts_with("inlined_in_named_here"); });
  ASSERT_NE(inlined, calls.end()) << stack.text();
  EXPECT_TRUE(inlined->inlined);
  EXPECT_EQ(inlined->line, static_cast<std::uint32_t>(line)) << stack.text();
  EXPECT_TRUE(inlined->file.ends_with("test_stack.cpp")) << inlined->file;
}

TEST(Stack, ThePrintedStackIsTheText) {
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  ASSERT_TRUE(windlass_test_printed_here(pipe[1]));
  ::close(pipe[1]);
  std::string text;
  char piece[4096];
  for (ssize_t size; (size = ::read(pipe[0], piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<std::size_t>(size));
  ::close(pipe[0]);
  EXPECT_TRUE(text.starts_with("#0   0x")) << text;
  const std::size_t first = text.find("windlass_test_printed_here");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("print_stack"), std::string::npos) << text;
  EXPECT_NE(text.find(" main+0x", first), std::string::npos) << text;
}

TEST(Stack, AStackThatCannotBeWrittenIsAnError) {
  const auto printed = windlass_test_printed_here(-1);
  ASSERT_FALSE(printed);
  EXPECT_EQ(printed.error().code, ErrorCode::kSystem);
  EXPECT_EQ(printed.error().detail, static_cast<std::uint64_t>(EBADF));
}

TEST(Stack, ControlCharactersOfNamesAreEscaped) {
  NamedStack stack;
  NamedFrame& frame = stack.frames.emplace_back();
  frame.names.frames.push_back({"a\nb\x1b[2J", "", "c\nd", 7, false, false});
  frame.arguments.push_back({true, {{"e\x1b", "int", "5"}, {"", "", "?"}}});
  const std::string text = stack.text();
  EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
  EXPECT_NE(text.find(" (e\\x1b=5, [unnamed]=?)"), std::string::npos) << text;
}

TEST(Stack, HasArgumentsIfWanted) {
  const test::LiveProcess process(WINDLASS_LIVE);
  const auto target = open_process(static_cast<std::uint64_t>(process.id()));
  ASSERT_TRUE(target) << target.error().text();
  std::size_t known = 0;
  for (const bool wanted : {false, true})
    for (const NamedStack& stack : named_stacks(*target, {.max_frames = 100, .names = {}, .arguments = wanted}))
      for (const NamedFrame& frame : stack.frames) {
        EXPECT_EQ(frame.arguments.size(), wanted ? frame.names.frames.size() : 0U);
        if (wanted && !frame.arguments.empty() && frame.names.frames.back().function == "main")
          known += frame.arguments.back().known ? 1 : 0;
      }
  EXPECT_EQ(known, 1U);
}

TEST(Stack, OfEveryThreadOfAProcess) {
  const test::LiveProcess process(WINDLASS_LIVE);
  std::vector<NamedStack> stacks;
  {
    const auto target = open_process(static_cast<std::uint64_t>(process.id()));
    ASSERT_TRUE(target) << target.error().text();
    stacks = named_stacks(*target);
    ASSERT_EQ(stacks.size(), target->threads.size());
  }
  // The names outlive the target.
  for (const NamedStack& stack : stacks) EXPECT_EQ(stack.end, WalkEnd::kComplete) << stack.error.text();
  EXPECT_TRUE(std::ranges::any_of(stacks, [](const NamedStack& stack) { return has(stack, "main"); }));
}

TEST(Stack, IsCutAtTheLimit) {
  StackOptions options;
  options.max_frames = 2;
  const NamedStack stack = named_stack(options);
  EXPECT_EQ(stack.frames.size(), 2U);
  EXPECT_EQ(stack.end, WalkEnd::kLimit);
  EXPECT_NE(stack.text().find("[frame limit: "), std::string::npos) << stack.text();
}

}  // namespace
}  // namespace windlass
