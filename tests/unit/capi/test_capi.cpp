#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "capi_stack.h"
#include "windlass/c/windlass.h"

extern "C" int use_from_c(void);

namespace {

TEST(CApi, WorksFromC99) { EXPECT_EQ(use_from_c(), 0) << "line in use_from_c.c"; }

TEST(CApi, Versions) {
  const uint32_t version = windlass_version();
  EXPECT_EQ(fmt::format("{}.{}.{}", version >> 16, version >> 8 & 0xff, version & 0xff), WINDLASS_VERSION);
  EXPECT_STREQ(windlass_version_text(), WINDLASS_VERSION);
}

TEST(CApi, NamesOfEveryValue) {
  EXPECT_STREQ(windlass_status_name(WINDLASS_OK), "WINDLASS_OK");
  EXPECT_STREQ(windlass_status_name(WINDLASS_SYSTEM), "WINDLASS_SYSTEM");
  EXPECT_STREQ(windlass_status_name(WINDLASS_SYSTEM + 1), "?");
  EXPECT_STREQ(windlass_status_name(-1), "?");
  EXPECT_STREQ(windlass_origin_name(WINDLASS_ORIGIN_LEAF), "leaf");
  EXPECT_STREQ(windlass_origin_name(99), "?");
  EXPECT_STREQ(windlass_certainty_name(WINDLASS_CERTAINTY_CHECKED), "checked");
  EXPECT_STREQ(windlass_certainty_name(99), "?");
  EXPECT_STREQ(windlass_end_name(WINDLASS_END_LIMIT), "frame limit");
  EXPECT_STREQ(windlass_end_name(WINDLASS_END_STOPPED), "stopped");
  EXPECT_STREQ(windlass_end_name(50), "?");
}

TEST(CApi, RegistersByNumber) {
  for (const std::uint32_t architecture : {WINDLASS_X86_64, WINDLASS_AARCH64}) {
    windlass_registers registers;
    registers.size = sizeof registers;
    ASSERT_EQ(windlass_registers_init(&registers, architecture), WINDLASS_OK);
    std::uint16_t numbers[64];
    const std::uint32_t count = windlass_preserved(architecture, numbers, 64);
    EXPECT_EQ(count, architecture == WINDLASS_X86_64 ? 6u : 19u);
    std::uint64_t value = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      EXPECT_EQ(windlass_get(&registers, numbers[i], &value), WINDLASS_NOT_FOUND);
      EXPECT_EQ(windlass_set(&registers, numbers[i], 1000 + i), WINDLASS_OK);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      EXPECT_EQ(windlass_get(&registers, numbers[i], &value), WINDLASS_OK);
      EXPECT_EQ(value, 1000 + i);
    }
    EXPECT_EQ(windlass_get(&registers, 200, &value), WINDLASS_OUT_OF_RANGE);
    EXPECT_EQ(windlass_set(&registers, 200, value), WINDLASS_OUT_OF_RANGE);
  }
  std::uint16_t two[2];
  EXPECT_EQ(windlass_preserved(WINDLASS_X86_64, two, 2), 6u);
  EXPECT_EQ(two[0], 3);
  EXPECT_EQ(two[1], 6);
}

// A process that stands and runs by turns. No cursor outlives a refresh; other spaces have nothing to refresh.
TEST(CApi, RefreshedProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) ::pause();
  }
  windlass_error error{};
  error.size = sizeof error;
  windlass_space* space = nullptr;
  const windlass_status opened = windlass_open_process(child, &space, &error);
  if (opened == WINDLASS_SYSTEM) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    GTEST_SKIP() << "SKIPPED: may not trace here: " << error.text;
  }
  ASSERT_EQ(opened, WINDLASS_OK) << error.text;
  std::size_t at_first = 0, threads = 0;
  EXPECT_EQ(windlass_thread_count(space, &at_first), WINDLASS_OK);
  EXPECT_GE(at_first, 1u);  // and a sanitizer's own
  windlass_registers registers{};
  registers.size = sizeof registers;
  ASSERT_EQ(windlass_thread_at(space, 0, nullptr, &registers), WINDLASS_OK);
  alignas(WINDLASS_CURSOR_ALIGNMENT) std::byte storage[8192];
  windlass_cursor* cursor = nullptr;
  ASSERT_EQ(windlass_cursor_init(storage, sizeof storage, space, &registers, nullptr, &cursor, nullptr), WINDLASS_OK);
  std::uint64_t stood = 0;
  EXPECT_EQ(windlass_release(space, &stood), WINDLASS_OK);
  EXPECT_GT(stood, 0u);
  windlass_refreshed changed{};
  EXPECT_EQ(windlass_refresh(space, &changed, &error), WINDLASS_INVALID);  // without its size
  changed.size = sizeof changed;
  changed.modules_new = 77;
  ASSERT_EQ(windlass_refresh(space, &changed, &error), WINDLASS_OK) << error.text;
  EXPECT_EQ(changed.modules_new + changed.modules_gone + changed.executed, 0u);
  EXPECT_EQ(windlass_thread_count(space, &threads), WINDLASS_OK);
  EXPECT_EQ(threads, at_first);
  EXPECT_EQ(windlass_step(cursor, nullptr), WINDLASS_INVALID);
  // A traced thread that has ended is its tracer's to wait for: until then the process is not seen to end.
  EXPECT_EQ(windlass_release(space, nullptr), WINDLASS_OK);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(windlass_refresh(space, nullptr, &error), WINDLASS_SYSTEM);
  EXPECT_EQ(error.detail, static_cast<std::uint64_t>(ESRCH));
  EXPECT_EQ(windlass_close(space), WINDLASS_OK);
  CapiStack stack;
  EXPECT_EQ(windlass_refresh(stack.space, nullptr, nullptr), WINDLASS_UNSUPPORTED);
  EXPECT_EQ(windlass_release(stack.space, &stood), WINDLASS_OK);
  EXPECT_EQ(stood, 0u);
}

TEST(CApi, CursorInCallersStorage) {
  CapiStack stack;
  const windlass_registers registers = stack.registers();
  alignas(WINDLASS_CURSOR_ALIGNMENT) std::byte storage[8192];
  ASSERT_LE(windlass_cursor_size(), sizeof storage);
  windlass_cursor* cursor = nullptr;
  ASSERT_EQ(windlass_cursor_init(storage, sizeof storage, stack.space, &registers, nullptr, &cursor, nullptr),
            WINDLASS_OK);
  windlass_frame frame;
  frame.size = sizeof frame;
  ASSERT_EQ(windlass_cursor_frame(cursor, &frame), WINDLASS_OK);
  EXPECT_EQ(frame.pc, CapiStack::kPcs[0]);
  EXPECT_EQ(frame.lookup, frame.pc - 1);
  EXPECT_EQ(frame.flags, WINDLASS_RETURN_ADDRESS);
  EXPECT_EQ(frame.origin, std::uint32_t{WINDLASS_ORIGIN_CONTEXT});
  EXPECT_STREQ(frame.module_path, "[jit]");
  std::uint32_t end = 99;
  EXPECT_EQ(windlass_end_reason(cursor, &end), WINDLASS_OK);
  EXPECT_EQ(end, std::uint32_t{WINDLASS_END_RUNNING});

  ASSERT_EQ(windlass_step(cursor, nullptr), WINDLASS_OK);
  ASSERT_EQ(windlass_cursor_frame(cursor, &frame), WINDLASS_OK);
  EXPECT_EQ(frame.pc, CapiStack::kPcs[1]);
  EXPECT_EQ(frame.index, 1u);
  EXPECT_EQ(frame.certainty, std::uint32_t{WINDLASS_CERTAINTY_GUESSED}) << "no call stands before it";
  std::uint64_t value = 0;
  std::uint64_t address = 1;
  EXPECT_EQ(windlass_cursor_get(cursor, 6, &value), WINDLASS_OK);
  EXPECT_EQ(value, CapiStack::kBase + 0x20);
  EXPECT_EQ(windlass_saved_at(cursor, 6, &address), WINDLASS_OK);
  EXPECT_EQ(address, CapiStack::kBase);
  EXPECT_EQ(windlass_saved_at(cursor, 16, &address), WINDLASS_OK);
  EXPECT_EQ(address, CapiStack::kBase + 8);
  EXPECT_EQ(windlass_saved_at(cursor, 7, &address), WINDLASS_NOT_FOUND);
  EXPECT_EQ(windlass_cursor_get(cursor, 0, &value), WINDLASS_NOT_FOUND);
  EXPECT_EQ(windlass_cursor_get(cursor, 5000, &value), WINDLASS_OUT_OF_RANGE);
  windlass_registers now;
  now.size = sizeof now;
  EXPECT_EQ(windlass_cursor_registers(cursor, &now), WINDLASS_OK);
  EXPECT_EQ(windlass_get(&now, 7, &value), WINDLASS_OK);
  EXPECT_EQ(value, CapiStack::kBase + 16);

  ASSERT_EQ(windlass_step(cursor, nullptr), WINDLASS_OK);
  EXPECT_EQ(windlass_step(cursor, nullptr), WINDLASS_END);
  EXPECT_EQ(windlass_step(cursor, nullptr), WINDLASS_END);
  EXPECT_EQ(windlass_end_reason(cursor, &end), WINDLASS_OK);
  EXPECT_EQ(end, std::uint32_t{WINDLASS_END_GUESSED}) << "a frame pointer of 0 is no proof";
  EXPECT_EQ(windlass_cursor_end(cursor), WINDLASS_OK);
}

TEST(CApi, StepsOnRegistersAlone) {
  CapiStack stack;
  windlass_registers registers = stack.registers();
  windlass_frame frame;
  frame.size = sizeof frame;
  std::uint32_t end = 0;
  for (int i = 1; i < 3; ++i) {
    ASSERT_EQ(windlass_step_registers(stack.space, &registers, &frame, &end, nullptr), WINDLASS_OK);
    EXPECT_EQ(frame.pc, CapiStack::kPcs[i]);
    EXPECT_EQ(end, std::uint32_t{WINDLASS_END_RUNNING});
  }
  const windlass_registers before = registers;
  EXPECT_EQ(windlass_step_registers(stack.space, &registers, &frame, &end, nullptr), WINDLASS_END);
  EXPECT_EQ(end, std::uint32_t{WINDLASS_END_GUESSED}) << "a frame pointer of 0 is no proof";
  EXPECT_EQ(std::memcmp(&before, &registers, sizeof before), 0);
}

TEST(CApi, WalkStopsWhereTheCallbackSays) {
  CapiStack stack;
  const windlass_registers registers = stack.registers();
  int calls = 0;
  const auto second = [](windlass_cursor*, const windlass_frame*, void* user) {
    return ++*static_cast<int*>(user) == 2 ? 1 : 0;
  };
  std::uint32_t end = 0;
  EXPECT_EQ(windlass_walk(stack.space, &registers, nullptr, second, &calls, &end, nullptr), WINDLASS_OK);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(end, std::uint32_t{WINDLASS_END_STOPPED});
}

TEST(CApi, WalkSaysWhyItEndedEarly) {
  CapiStack stack;
  const windlass_registers registers = stack.registers();
  const auto go_on = [](windlass_cursor*, const windlass_frame*, void*) { return 0; };
  windlass_error error;
  error.size = sizeof error;
  std::uint32_t end = 0;
  windlass_options options{sizeof options, 2, 0, 0};
  EXPECT_EQ(windlass_walk(stack.space, &registers, &options, go_on, nullptr, &end, &error), WINDLASS_OK);
  EXPECT_EQ(end, std::uint32_t{WINDLASS_END_LIMIT});
  EXPECT_EQ(error.status, WINDLASS_LIMIT);
  EXPECT_EQ(error.where, CapiStack::kPcs[1]);
  EXPECT_STREQ(error.text, "0x1100: frame limit");

  EXPECT_EQ(windlass_remove(stack.space, CapiStack::kCode), WINDLASS_OK);
  EXPECT_EQ(windlass_walk(stack.space, &registers, nullptr, go_on, nullptr, &end, &error), WINDLASS_OK);
  EXPECT_EQ(end, std::uint32_t{WINDLASS_END_NO_MODULE});
  EXPECT_EQ(error.status, WINDLASS_NOT_FOUND);
}

TEST(CApi, ModulesAreListedAndFound) {
  CapiStack stack;
  windlass_module module{};
  module.size = sizeof module;
  module.begin = 0x5000;
  module.end = 0x6000;
  module.bias = 0x4000;
  module.path = "/nowhere/libx.so";
  ASSERT_EQ(windlass_add_module(stack.space, &module, nullptr), WINDLASS_OK);
  std::size_t count = 0;
  EXPECT_EQ(windlass_module_count(stack.space, &count), WINDLASS_OK);
  EXPECT_EQ(count, 2u);
  windlass_module found;
  found.size = sizeof found;
  ASSERT_EQ(windlass_module_at(stack.space, 1, &found), WINDLASS_OK);
  EXPECT_STREQ(found.path, "/nowhere/libx.so");
  EXPECT_EQ(found.bias, 0x4000u);
  EXPECT_EQ(windlass_module_at(stack.space, 2, &found), WINDLASS_NOT_FOUND);
  ASSERT_EQ(windlass_find_module(stack.space, 0x1fff, &found), WINDLASS_OK);
  EXPECT_STREQ(found.path, "[jit]");
  EXPECT_EQ(windlass_find_module(stack.space, 0x2000, &found), WINDLASS_NOT_FOUND);

  windlass_error error;
  error.size = sizeof error;
  EXPECT_EQ(windlass_add_module(stack.space, &module, &error), WINDLASS_MALFORMED);
  EXPECT_NE(std::string(error.text).find("overlaps"), std::string::npos) << error.text;
  EXPECT_EQ(windlass_remove(stack.space, 0x5000), WINDLASS_OK);
  EXPECT_EQ(windlass_remove(stack.space, 0x5000), WINDLASS_NOT_FOUND);
  EXPECT_EQ(windlass_thread_count(stack.space, &count), WINDLASS_OK);
  EXPECT_EQ(count, 0u);
}

}  // namespace
