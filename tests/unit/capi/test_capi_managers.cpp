// Code managers through the C interface: what is taken over, found and walked, and what is refused.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "windlass/c/windlass.h"

namespace {

constexpr std::uint64_t kBegin = 0x7'0000'0000, kSize = 1 << 20;

struct Error : windlass_error {
  Error() : windlass_error{} { size = sizeof(windlass_error); }
};

windlass_generated managed(std::uint64_t address, std::uint64_t size, const char* name, std::uint32_t user) {
  windlass_generated made{};
  made.size = sizeof made;
  made.address = address;
  made.code_size = size;
  made.name = name;
  made.user = user;
  return made;
}

class CManagers : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(windlass_open_code_manager(kBegin, kBegin + kSize, 1000, &manager_, &error_), WINDLASS_OK) << error_.text;
  }
  void TearDown() override { windlass_close_code_manager(manager_); }
  windlass_status add(const windlass_generated& one) { return windlass_manage(manager_, nullptr, 0, &one, 1, &error_); }
  windlass_status find(std::uint64_t address, std::size_t room = 64) {
    found_.size = sizeof found_;
    return windlass_find_managed(manager_, address, &found_, name_, room);
  }

  windlass_code_manager* manager_ = nullptr;
  windlass_generated found_{};
  char name_[64] = "";
  Error error_;
};

TEST_F(CManagers, FunctionsComeMoveAndGo) {
  const windlass_generated both[] = {managed(kBegin, 16, "first", 1), managed(kBegin + 100, 2000, "second", 2)};
  ASSERT_EQ(windlass_manage(manager_, nullptr, 0, both, 2, &error_), WINDLASS_OK) << error_.text;
  ASSERT_EQ(find(kBegin + 2099), WINDLASS_OK);
  EXPECT_EQ(found_.address, kBegin + 100);
  EXPECT_EQ(found_.code_size, 2000u);
  EXPECT_EQ(found_.user, 2u);
  EXPECT_STREQ(name_, "second");
  EXPECT_EQ(found_.name, name_);
  ASSERT_EQ(find(kBegin, 4), WINDLASS_OK);
  EXPECT_STREQ(name_, "fir");
  ASSERT_EQ(find(kBegin, 0), WINDLASS_OK);
  EXPECT_EQ(found_.name, nullptr);
  EXPECT_EQ(find(kBegin + 16), WINDLASS_NOT_FOUND);

  const std::uint64_t from = kBegin + 100;
  const windlass_generated to = managed(kBegin + 50, 2000, "second", 2);
  ASSERT_EQ(windlass_manage(manager_, &from, 1, &to, 1, &error_), WINDLASS_OK) << error_.text;
  EXPECT_EQ(find(kBegin + 2099), WINDLASS_NOT_FOUND);
  EXPECT_EQ(find(kBegin + 50), WINDLASS_OK);
  EXPECT_EQ(windlass_manage(manager_, &from, 1, nullptr, 0, &error_), WINDLASS_NOT_FOUND);
  EXPECT_EQ(error_.where, from);
  EXPECT_EQ(add(managed(kBegin + 10, 10, nullptr, 0)), WINDLASS_MALFORMED);
  EXPECT_EQ(error_.where, kBegin + 10);
  EXPECT_EQ(add(managed(kBegin + kSize - 1, 2, nullptr, 0)), WINDLASS_OUT_OF_RANGE);
  EXPECT_EQ(add(managed(kBegin + 5000, 2, std::string(70'000, 'n').c_str(), 0)), WINDLASS_LIMIT);
}

TEST_F(CManagers, MisuseIsAnError) {
  windlass_generated one = managed(kBegin, 16, nullptr, 0);
  EXPECT_EQ(windlass_manage(nullptr, nullptr, 0, &one, 1, &error_), WINDLASS_INVALID);
  EXPECT_EQ(windlass_manage(manager_, nullptr, 0, nullptr, 1, &error_), WINDLASS_INVALID);
  EXPECT_EQ(windlass_manage(manager_, nullptr, 1, &one, 1, &error_), WINDLASS_INVALID);
  one.size = 8;
  EXPECT_EQ(add(one), WINDLASS_INVALID);
  one = managed(kBegin, 16, nullptr, 0);
  one.row_count = 1;
  EXPECT_EQ(add(one), WINDLASS_INVALID);
  windlass_prologue prologue{};
  one = managed(kBegin, 16, nullptr, 0);
  one.prologue = &prologue;
  EXPECT_EQ(add(one), WINDLASS_INVALID) << "no size";
  prologue.size = sizeof prologue;
  EXPECT_EQ(add(one), WINDLASS_OK) << error_.text;
  windlass_row row{kBegin + 0x1000 - 1, kBegin + 0x1008, 7, 8, -8, 0, nullptr};
  one = managed(kBegin + 0x1000, 16, nullptr, 0);
  one.rows = &row;
  one.row_count = 1;
  EXPECT_EQ(add(one), WINDLASS_MALFORMED) << "a row before its function";
  row.begin += 1;
  row.end = kBegin + 0x1011;
  EXPECT_EQ(add(one), WINDLASS_OUT_OF_RANGE) << "a row behind its function";
  one.prologue = &prologue;
  EXPECT_EQ(add(one), WINDLASS_MALFORMED) << "both forms";

  windlass_code_manager* other = nullptr;
  EXPECT_EQ(windlass_open_code_manager(kBegin, kBegin + kSize, 0, nullptr, &error_), WINDLASS_INVALID);
  EXPECT_EQ(windlass_open_code_manager(5, 5, 0, &other, &error_), WINDLASS_OUT_OF_RANGE);
  EXPECT_EQ(windlass_open_code_manager(kBegin + 1, kBegin + 2, 0, &other, &error_), WINDLASS_MALFORMED);
  EXPECT_EQ(windlass_close_code_manager(other), WINDLASS_INVALID);
  EXPECT_EQ(windlass_code_manager_fd(other), -1);
  std::uint64_t id = 0;
  EXPECT_EQ(windlass_add_own_managed_code(-1, &id, &error_), WINDLASS_UNSUPPORTED);
  const int plain = ::memfd_create("plain", MFD_CLOEXEC);
  EXPECT_EQ(windlass_add_own_managed_code(plain, &id, &error_), WINDLASS_UNSUPPORTED) << "it may shrink";
  ::close(plain);
  EXPECT_EQ(windlass_add_own_managed_code(windlass_code_manager_fd(manager_), &id, &error_), WINDLASS_MALFORMED)
      << "it is known already";
}

TEST_F(CManagers, AClosedOneIsToldFromAnOpenOne) {
  windlass_code_manager* other = nullptr;
  const std::uint64_t begin = kBegin + 2 * kSize;
  ASSERT_EQ(windlass_open_code_manager(begin, begin + 4096, 0, &other, &error_), WINDLASS_OK) << error_.text;
  EXPECT_GE(windlass_code_manager_fd(other), 0);
  EXPECT_EQ(windlass_close_code_manager(other), WINDLASS_OK);
  EXPECT_EQ(windlass_close_code_manager(other), WINDLASS_INVALID);
  EXPECT_EQ(windlass_manage(other, nullptr, 0, nullptr, 0, &error_), WINDLASS_INVALID);
  found_.size = sizeof found_;
  EXPECT_EQ(windlass_find_managed(other, begin, &found_, nullptr, 0), WINDLASS_INVALID);
  windlass_code_manager* again = nullptr;
  ASSERT_EQ(windlass_open_code_manager(begin, begin + 4096, 0, &again, &error_), WINDLASS_OK) << error_.text;
  EXPECT_EQ(windlass_close_code_manager(again), WINDLASS_OK);
}

#if defined(__x86_64__)

// ---- walks ----

// void generated(void (*f)(void), size): the size of its frame depends on a counter of the processor, shifted out of
// its register. So only the added rows show where the caller is.
constexpr unsigned char kCode[] = {0x48, 0x83, 0xec, 0x28,                           // sub rsp, 40
                                   0xff, 0xd7,                                       // call rdi
                                   0x0f, 0x31, 0xc1, 0xe8, 0x1f, 0xd1, 0xe8,         // rdtsc; shr eax, 31; shr eax, 1
                                   0x48, 0x01, 0xc4, 0x48, 0x83, 0xc4, 0x28, 0xc3};  // add rsp, rax; add rsp, 40; ret

std::vector<windlass_frame> walked;
int keep(windlass_cursor*, const windlass_frame* frame, void*) {
  walked.push_back(*frame);
  return 0;
}
[[gnu::noinline]] void walk() {
  windlass_space* space;
  windlass_registers registers;
  registers.size = sizeof registers;
  windlass_open_self(&space, nullptr);
  windlass_capture_registers(&registers);
  walked.clear();
  windlass_walk(space, &registers, nullptr, keep, nullptr, nullptr, nullptr);
  windlass_close(space);
}

class Stub {
 public:
  Stub() {
    room_ = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memcpy(room_, kCode, sizeof kCode);
    std::memcpy(&function_, &room_, sizeof function_);
  }
  ~Stub() { ::munmap(room_, 4096); }
  [[nodiscard]] std::uint64_t begin() const { return reinterpret_cast<std::uintptr_t>(room_); }
  // The frame of the stub, and of what called it, which has to be `caller`'s.
  [[nodiscard, gnu::noinline]] bool leads_here() const {
    function_(walk);
    const auto* here = static_cast<const unsigned char*>(__builtin_return_address(0));
    bool found = false;
    for (std::size_t i = 0; i + 2 < walked.size(); ++i)
      if (walked[i].pc == begin() + 6) found = walked[i + 2].pc == reinterpret_cast<std::uintptr_t>(here);
    return found && walked.back().pc != 0;
  }

 private:
  void* room_;
  void (*function_)(void (*)());
};

// By a prologue and by rows; when they are gone, nothing says where the caller is.
TEST(CManagersWalks, SeeFunctionsAtOnce) {
  const Stub stub;
  Error error;
  windlass_code_manager* manager = nullptr;
  ASSERT_EQ(windlass_open_code_manager(stub.begin(), stub.begin() + 4096, 0, &manager, &error), WINDLASS_OK)
      << error.text;
  const windlass_op op{4, WINDLASS_ALLOCATE, 0, 0, 0, 40};
  const windlass_op back{20, WINDLASS_ALLOCATE, 0, 0, 0, 40};
  const windlass_epilogue epilogue{16, 21, &back, 1};
  windlass_prologue prologue{};
  prologue.size = sizeof prologue;
  prologue.ops = &op;
  prologue.op_count = 1;
  prologue.epilogues = &epilogue;
  prologue.epilogue_count = 1;
  windlass_row rows[] = {{stub.begin(), stub.begin() + 4, 7, 8, -8, 0, nullptr},
                         {stub.begin() + 4, stub.begin() + 20, 7, 48, -8, 0, nullptr},
                         {stub.begin() + 20, stub.begin() + 21, 7, 8, -8, 0, nullptr}};
  windlass_generated described = managed(stub.begin(), sizeof kCode, "stub", 0), rowed = described;
  described.prologue = &prologue;
  rowed.rows = rows;
  rowed.row_count = 3;
  EXPECT_FALSE(stub.leads_here());
  for (const windlass_generated& one : {described, rowed}) {
    ASSERT_EQ(windlass_manage(manager, nullptr, 0, &one, 1, &error), WINDLASS_OK) << error.text;
    EXPECT_TRUE(stub.leads_here());
    ASSERT_EQ(windlass_manage(manager, &one.address, 1, nullptr, 0, &error), WINDLASS_OK) << error.text;
    EXPECT_FALSE(stub.leads_here());
  }
  ASSERT_EQ(windlass_manage(manager, nullptr, 0, &rowed, 1, &error), WINDLASS_OK) << error.text;
  EXPECT_TRUE(stub.leads_here());
  EXPECT_EQ(windlass_close_code_manager(manager), WINDLASS_OK);
  EXPECT_FALSE(stub.leads_here());
}

#endif

}  // namespace
