// What a wrong call does: says so, and nothing else.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "capi_stack.h"
#include "windlass/c/windlass.h"

namespace {

int never(windlass_cursor*, const windlass_frame*, void*) { return 0; }

TEST(CApiMisuse, NullArguments) {
  CapiStack stack;
  const windlass_registers registers = stack.registers();
  windlass_registers to = registers;
  windlass_module module;
  module.size = sizeof module;
  std::uint64_t value = 0;
  std::uint32_t number = 0;
  std::size_t count = 0;
  windlass_cursor* cursor = nullptr;
  alignas(16) std::byte storage[8192];
  const windlass_memory memory{sizeof memory, nullptr, nullptr, nullptr};
  windlass_space* space = nullptr;
  for (const windlass_status status : {
           windlass_open_self(nullptr, nullptr),
           windlass_open_callbacks(WINDLASS_X86_64, &memory, &space, nullptr),  // no read
           windlass_open_callbacks(WINDLASS_X86_64, nullptr, &space, nullptr),
           windlass_open_callbacks(WINDLASS_X86_64, &memory, nullptr, nullptr),
           windlass_open_callbacks(7, &memory, &space, nullptr),
           windlass_close(nullptr),
           windlass_release(nullptr, nullptr),
           windlass_refresh(nullptr, nullptr, nullptr),
           windlass_space_architecture(nullptr, &number),
           windlass_space_architecture(stack.space, nullptr),
           windlass_add_module(nullptr, &module, nullptr),
           windlass_add_module(stack.space, nullptr, nullptr),
           windlass_add_code(nullptr, nullptr, nullptr, nullptr),
           windlass_add_code(stack.space, nullptr, nullptr, nullptr),
           windlass_retire_code(nullptr, 0, nullptr),
           windlass_add_own_code(nullptr, nullptr, nullptr),
           windlass_remove(nullptr, 0),
           windlass_module_count(nullptr, &count),
           windlass_module_count(stack.space, nullptr),
           windlass_module_at(nullptr, 0, &module),
           windlass_module_at(stack.space, 0, nullptr),
           windlass_find_module(nullptr, 0, &module),
           windlass_find_module(stack.space, 0x1000, nullptr),
           windlass_thread_count(nullptr, &count),
           windlass_thread_count(stack.space, nullptr),
           windlass_thread_at(nullptr, 0, nullptr, nullptr),
           windlass_registers_init(nullptr, WINDLASS_X86_64),
           windlass_registers_init(&to, 9),
           windlass_get(nullptr, 0, &value),
           windlass_get(&registers, 0, nullptr),
           windlass_set(nullptr, 0, 0),
           windlass_capture_registers(nullptr),
           windlass_from_ucontext(nullptr, &to),
           windlass_walk(nullptr, &registers, nullptr, never, nullptr, nullptr, nullptr),
           windlass_walk(stack.space, nullptr, nullptr, never, nullptr, nullptr, nullptr),
           windlass_walk(stack.space, &registers, nullptr, nullptr, nullptr, nullptr, nullptr),
           windlass_step_registers(nullptr, &to, nullptr, nullptr, nullptr),
           windlass_step_registers(stack.space, nullptr, nullptr, nullptr, nullptr),
           windlass_cursor_init(nullptr, 8192, stack.space, &registers, nullptr, &cursor, nullptr),
           windlass_cursor_init(storage, 8, stack.space, &registers, nullptr, &cursor, nullptr),
           windlass_cursor_init(storage + 1, 8191, stack.space, &registers, nullptr, &cursor, nullptr),
           windlass_cursor_init(storage, 8192, nullptr, &registers, nullptr, &cursor, nullptr),
           windlass_cursor_init(storage, 8192, stack.space, nullptr, nullptr, &cursor, nullptr),
           windlass_cursor_init(storage, 8192, stack.space, &registers, nullptr, nullptr, nullptr),
           windlass_cursor_end(nullptr),
           windlass_step(nullptr, nullptr),
           windlass_end_reason(nullptr, &number),
           windlass_cursor_frame(nullptr, nullptr),
           windlass_cursor_registers(nullptr, &to),
           windlass_cursor_get(nullptr, 0, &value),
           windlass_saved_at(nullptr, 0, &value),
       })
    EXPECT_EQ(status, WINDLASS_INVALID);
  EXPECT_EQ(space, nullptr);
  EXPECT_EQ(cursor, nullptr);
  EXPECT_EQ(windlass_preserved(9, nullptr, 0), 0u);
}

TEST(CApiMisuse, ErrorsAreWritten) {
  windlass_error error{};
  error.size = sizeof error;
  EXPECT_EQ(windlass_walk(nullptr, nullptr, nullptr, never, nullptr, nullptr, &error), WINDLASS_INVALID);
  EXPECT_EQ(error.status, WINDLASS_INVALID);
  EXPECT_STREQ(error.text, "the space is not open");
  error.size = 8;  // not an error struct: nothing is written
  error.text[0] = 'x';
  EXPECT_EQ(windlass_walk(nullptr, nullptr, nullptr, never, nullptr, nullptr, &error), WINDLASS_INVALID);
  EXPECT_EQ(error.text[0], 'x');
}

// A caller that was compiled with a later header: its struct is longer.
struct Later {
  windlass_registers registers;
  std::uint64_t more[4];
};

TEST(CApiMisuse, SizesOfOtherVersions) {
  CapiStack stack;
  Later later{};
  later.registers = stack.registers();
  later.registers.size = sizeof later;
  std::uint64_t value = 0;
  EXPECT_EQ(windlass_get(&later.registers, 16, &value), WINDLASS_OK);
  later.more[1] = 1;  // something this library does not know is asked for
  EXPECT_EQ(windlass_get(&later.registers, 16, &value), WINDLASS_INVALID);
  EXPECT_EQ(windlass_registers_init(&later.registers, WINDLASS_X86_64), WINDLASS_OK);
  EXPECT_EQ(later.more[1], 0u);
  EXPECT_EQ(later.registers.size, sizeof later);

  for (const std::size_t size :
       {std::size_t{0}, std::size_t{8}, sizeof(windlass_registers) - 1, std::size_t{1} << 40}) {
    windlass_registers wrong = stack.registers();
    wrong.size = size;
    EXPECT_EQ(windlass_get(&wrong, 16, &value), WINDLASS_INVALID) << size;
    EXPECT_EQ(windlass_set(&wrong, 16, 0), WINDLASS_INVALID) << size;
    EXPECT_EQ(windlass_walk(stack.space, &wrong, nullptr, never, nullptr, nullptr, nullptr), WINDLASS_INVALID) << size;
  }
  for (const std::size_t size : {std::size_t{0}, offsetof(windlass_frame, certainty) - 1, std::size_t{5000}}) {
    windlass_registers right = stack.registers();
    windlass_frame frame;
    frame.size = size;
    EXPECT_EQ(windlass_step_registers(stack.space, &right, &frame, nullptr, nullptr), WINDLASS_INVALID) << size;
  }
}

TEST(CApiMisuse, RegistersThatAreNone) {
  CapiStack stack;
  windlass_registers registers = stack.registers();
  std::uint64_t value = 0;
  registers.known |= std::uint64_t{1} << 60;
  EXPECT_EQ(windlass_get(&registers, 16, &value), WINDLASS_INVALID);
  registers = stack.registers();
  registers.flags |= 0x80;
  EXPECT_EQ(windlass_get(&registers, 16, &value), WINDLASS_INVALID);
  registers = stack.registers();
  registers.architecture = 5;
  EXPECT_EQ(windlass_get(&registers, 16, &value), WINDLASS_INVALID);

  windlass_error error;
  error.size = sizeof error;
  windlass_registers_init(&(registers = stack.registers()), WINDLASS_AARCH64);
  EXPECT_EQ(windlass_walk(stack.space, &registers, nullptr, never, nullptr, nullptr, &error), WINDLASS_INVALID);
  EXPECT_STREQ(error.text, "registers of another architecture");
  windlass_registers_init(&registers, WINDLASS_X86_64);
  EXPECT_EQ(windlass_walk(stack.space, &registers, nullptr, never, nullptr, nullptr, &error), WINDLASS_INVALID);
  EXPECT_STREQ(error.text, "a walk needs the pc and the stack pointer");
  windlass_options options{sizeof options, 0, 0x100, 0};
  registers = stack.registers();
  EXPECT_EQ(windlass_walk(stack.space, &registers, &options, never, nullptr, nullptr, &error), WINDLASS_INVALID);
  EXPECT_STREQ(error.text, "windlass_options is not set up");
}

TEST(CApiMisuse, ClosedHandles) {
  alignas(16) std::byte storage[8192];
  windlass_cursor* cursor = nullptr;
  windlass_space* closed = nullptr;
  std::size_t count = 0;
  {
    CapiStack stack;
    const windlass_registers registers = stack.registers();
    closed = stack.space;
    ASSERT_EQ(windlass_cursor_init(storage, sizeof storage, stack.space, &registers, nullptr, &cursor, nullptr),
              WINDLASS_OK);
    EXPECT_EQ(windlass_close(stack.space), WINDLASS_OK);
    EXPECT_EQ(stack.released, 1);
    EXPECT_EQ(windlass_close(stack.space), WINDLASS_INVALID);
    EXPECT_EQ(stack.released, 1);
    EXPECT_EQ(windlass_walk(stack.space, &registers, nullptr, never, nullptr, nullptr, nullptr), WINDLASS_INVALID);
  }
  EXPECT_EQ(windlass_module_count(closed, &count), WINDLASS_INVALID);
  EXPECT_EQ(windlass_step(cursor, nullptr), WINDLASS_INVALID);
  CapiStack other;  // takes the shell of the one that was closed
  EXPECT_EQ(windlass_step(cursor, nullptr), WINDLASS_INVALID);
  EXPECT_EQ(windlass_cursor_end(cursor), WINDLASS_OK);
  EXPECT_EQ(windlass_cursor_end(cursor), WINDLASS_INVALID);
  EXPECT_EQ(windlass_step(cursor, nullptr), WINDLASS_INVALID);
}

TEST(CApiMisuse, IndexesAndImages) {
  CapiStack stack;
  const windlass_registers registers = stack.registers();
  EXPECT_EQ(windlass_module_at(stack.space, 99, nullptr), WINDLASS_INVALID);
  windlass_module module;
  module.size = sizeof module;
  EXPECT_EQ(windlass_module_at(stack.space, 99, &module), WINDLASS_NOT_FOUND);
  EXPECT_EQ(windlass_thread_at(stack.space, 0, nullptr, nullptr), WINDLASS_NOT_FOUND);
  windlass_module bytes{};  // an image without its size
  bytes.size = sizeof bytes;
  bytes.begin = 0x9000;
  bytes.end = 0xa000;
  bytes.image = &registers;
  EXPECT_EQ(windlass_add_module(stack.space, &bytes, nullptr), WINDLASS_INVALID);
}

}  // namespace
