// Generated code made known through the C interface: what is taken over, and what is refused.
#include <sys/mman.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "windlass/c/windlass.h"

namespace windlass {
namespace {

struct Error : windlass_error {
  Error() : windlass_error{} { size = sizeof(windlass_error); }
};

class CRegistration : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(reinterpret_cast<void*>(code_), MAP_FAILED);
    ASSERT_EQ(windlass_open_registrar(WINDLASS_REGISTRY_OWN, nullptr, &registrar_, &error_), WINDLASS_OK)
        << error_.text;
  }
  void TearDown() override {
    windlass_close_registrar(registrar_);
    ::munmap(reinterpret_cast<void*>(code_), 4096);
  }
  // 16 bytes of code that nobody runs.
  windlass_generated function(std::uint64_t place) {
    windlass_generated made{};
    made.size = sizeof made;
    made.address = code_ + place * 16;
    made.code_size = 16;
    made.name = "f";
    made.prologue = &prologue_;
    return made;
  }

  const std::uint64_t code_ =
      reinterpret_cast<std::uint64_t>(::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  windlass_registrar* registrar_ = nullptr;
  windlass_op op_{.end = 4, .action = WINDLASS_ALLOCATE, .reg = 0, .second = 0, .offset = 0, .bytes = 32};
  windlass_prologue prologue_{sizeof prologue_, &op_, 1, nullptr, 0};
  Error error_;
};

TEST_F(CRegistration, BatchesComeAndGo) {
  const std::vector<windlass_generated> functions = {function(0), function(1)};
  std::uint64_t id = 0;
  ASSERT_EQ(windlass_register(registrar_, functions.data(), 2, &id, &error_), WINDLASS_OK) << error_.text;
  EXPECT_EQ(windlass_register(registrar_, &functions[1], 1, nullptr, &error_), WINDLASS_MALFORMED);
  EXPECT_EQ(error_.where, functions[1].address);
  EXPECT_EQ(windlass_unregister(registrar_, id, &error_), WINDLASS_OK);
  EXPECT_EQ(windlass_unregister(registrar_, id, &error_), WINDLASS_NOT_FOUND);
  EXPECT_EQ(windlass_register(registrar_, &functions[1], 1, nullptr, &error_), WINDLASS_OK) << error_.text;
}

TEST_F(CRegistration, BatchesMove) {
  const std::vector<windlass_generated> before = {function(0), function(1)}, now = {function(1), function(4)};
  std::uint64_t id = 0;
  ASSERT_EQ(windlass_register(registrar_, before.data(), 2, &id, &error_), WINDLASS_OK) << error_.text;
  const std::uint64_t from[] = {before[0].address, before[1].address};
  ASSERT_EQ(windlass_move(registrar_, id, from, now.data(), 2, &error_), WINDLASS_OK) << error_.text;
  EXPECT_EQ(windlass_register(registrar_, &now[1], 1, nullptr, &error_), WINDLASS_MALFORMED);
  EXPECT_EQ(windlass_register(registrar_, &before[0], 1, nullptr, &error_), WINDLASS_OK) << "the place is free";
  EXPECT_EQ(windlass_move(registrar_, id, nullptr, now.data(), 2, &error_), WINDLASS_INVALID);
  EXPECT_EQ(windlass_move(registrar_, id, from, now.data(), 0, &error_), WINDLASS_INVALID);
  EXPECT_EQ(windlass_move(nullptr, id, from, now.data(), 2, &error_), WINDLASS_INVALID);
  EXPECT_EQ(windlass_move(registrar_, id + 7, from, now.data(), 2, &error_), WINDLASS_NOT_FOUND);
  EXPECT_EQ(windlass_move(registrar_, id, from, now.data(), 2, &error_), WINDLASS_MALFORMED) << "not where it was";
  EXPECT_EQ(windlass_unregister(registrar_, id, &error_), WINDLASS_NOT_FOUND) << "an error removes";
}

TEST_F(CRegistration, MisuseIsAnError) {
  windlass_generated one = function(0);
  EXPECT_EQ(windlass_register(nullptr, &one, 1, nullptr, &error_), WINDLASS_INVALID);
  EXPECT_EQ(windlass_register(registrar_, nullptr, 1, nullptr, &error_), WINDLASS_INVALID);
  EXPECT_EQ(windlass_register(registrar_, &one, 0, nullptr, &error_), WINDLASS_INVALID);
  one.size = 8;
  EXPECT_EQ(windlass_register(registrar_, &one, 1, nullptr, &error_), WINDLASS_INVALID);
  one = function(0);
  one.prologue = nullptr;
  EXPECT_EQ(windlass_register(registrar_, &one, 1, nullptr, &error_), WINDLASS_MALFORMED) << "no form";
  one = function(0);
  prologue_.ops = nullptr;
  EXPECT_EQ(windlass_register(registrar_, &one, 1, nullptr, &error_), WINDLASS_INVALID);
  prologue_ = {8, &op_, 1, nullptr, 0};
  EXPECT_EQ(windlass_register(registrar_, &one, 1, nullptr, &error_), WINDLASS_INVALID) << "its size";
  prologue_.size = sizeof prologue_;
  op_.action = 17;
  EXPECT_EQ(windlass_register(registrar_, &one, 1, nullptr, &error_), WINDLASS_INVALID);
  op_ = {.end = 20, .action = WINDLASS_ALLOCATE, .reg = 0, .second = 0, .offset = 0, .bytes = 32};
  EXPECT_EQ(windlass_register(registrar_, &one, 1, nullptr, &error_), WINDLASS_OUT_OF_RANGE) << "an op behind the code";
  windlass_registrar* other = nullptr;
  EXPECT_EQ(windlass_open_registrar(99, nullptr, &other, &error_), WINDLASS_INVALID);
  EXPECT_EQ(windlass_open_registrar(7, nullptr, &other, &error_), WINDLASS_INVALID) << "Windows' are of C++ alone";
  windlass_registrar_options options{sizeof options, "/nonexistent", 0, 0};
  EXPECT_EQ(windlass_open_registrar(WINDLASS_REGISTRY_JITDUMP, &options, &other, &error_), WINDLASS_SYSTEM);
  EXPECT_EQ(windlass_open_registrar(WINDLASS_REGISTRY_CODE_MANAGER, nullptr, &other, &error_), WINDLASS_OUT_OF_RANGE)
      << "no heap";
  options.size = 8;
  EXPECT_EQ(windlass_open_registrar(WINDLASS_REGISTRY_PERF_MAP, &options, &other, &error_), WINDLASS_INVALID);
  EXPECT_EQ(windlass_open_registrar(WINDLASS_REGISTRY_OWN, nullptr, nullptr, &error_), WINDLASS_INVALID);
  EXPECT_EQ(windlass_close_registrar(other), WINDLASS_INVALID);
}

// The same description, by rows and by a prologue, in a registry and in a heap's table.
TEST_F(CRegistration, ACodeManagerTakesWhatRegistrarsTake) {
  windlass_row rows[] = {{code_, code_ + 4, 7, 8, -8, 0, nullptr}, {code_ + 4, code_ + 16, 7, 40, -8, 0, nullptr}};
  windlass_generated rowed = function(0);
  rowed.prologue = nullptr;
  rowed.rows = rows;
  rowed.row_count = 2;
  windlass_registrar* heap = nullptr;
  const windlass_registrar_options options{sizeof options, nullptr, code_, code_ + 2048};
  ASSERT_EQ(windlass_open_registrar(WINDLASS_REGISTRY_CODE_MANAGER, &options, &heap, &error_), WINDLASS_OK)
      << error_.text;
  const windlass_generated both[] = {rowed, function(1)}, outside = function(128);
  for (windlass_registrar* registrar : {heap, registrar_}) {
    std::uint64_t id = 0;
    ASSERT_EQ(windlass_register(registrar, both, 2, &id, &error_), WINDLASS_OK) << error_.text;
    EXPECT_EQ(windlass_register(registrar, &both[1], 1, nullptr, &error_), WINDLASS_MALFORMED);
    EXPECT_EQ(windlass_unregister(registrar, id, &error_), WINDLASS_OK);
    if (registrar == heap) {
      EXPECT_EQ(windlass_close_registrar(heap), WINDLASS_OK);
    }
  }
  ASSERT_EQ(windlass_open_registrar(WINDLASS_REGISTRY_CODE_MANAGER, &options, &heap, &error_), WINDLASS_OK);
  EXPECT_EQ(windlass_register(heap, &outside, 1, nullptr, &error_), WINDLASS_OUT_OF_RANGE);
  rows[0].begin -= 1;
  EXPECT_EQ(windlass_register(heap, both, 1, nullptr, &error_), WINDLASS_MALFORMED) << "a row before its function";
  EXPECT_EQ(windlass_close_registrar(heap), WINDLASS_OK);
}

TEST_F(CRegistration, AClosedRegistrarIsToldFromAnOpenOne) {
  windlass_registrar* other = nullptr;
  ASSERT_EQ(windlass_open_registrar(WINDLASS_REGISTRY_OWN, nullptr, &other, &error_), WINDLASS_OK);
  const windlass_generated one = function(5);
  ASSERT_EQ(windlass_register(other, &one, 1, nullptr, &error_), WINDLASS_OK) << error_.text;
  EXPECT_EQ(windlass_close_registrar(other), WINDLASS_OK);
  EXPECT_EQ(windlass_close_registrar(other), WINDLASS_INVALID);
  EXPECT_EQ(windlass_register(other, &one, 1, nullptr, &error_), WINDLASS_INVALID);
  EXPECT_EQ(windlass_unregister(other, 1, &error_), WINDLASS_INVALID);
  const std::uint64_t from[] = {one.address};
  EXPECT_EQ(windlass_move(other, 1, from, &one, 1, &error_), WINDLASS_INVALID);
  EXPECT_EQ(windlass_register(registrar_, &one, 1, nullptr, &error_), WINDLASS_OK) << "its code went with it";
}

}  // namespace
}  // namespace windlass
