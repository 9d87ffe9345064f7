// Function tables in the memory of a Windows process: the list found by ntdll.dll's code, look-ups, and rows. Also
// lists and tables that lie, and some that change.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>

#include "base/registers.h"
#include "runtimes/windows/find.h"
#include "runtimes/windows/rows.h"
#include "runtimes/windows/tables.h"
#include "support/fake_ntdll.h"

namespace windlass::runtimes {
namespace {

using test::FakeNtdll;
using test::MadeUpMemory;
using windows::Table;

constexpr std::uint64_t kBase = FakeNtdll::kBase, kHead = FakeNtdll::kHead, kRoom = FakeNtdll::kRoom;

class OfSystem : public ::testing::TestWithParam<bool> {
 protected:
  OfSystem() { ntdll_.of_wine = GetParam(); }
  FakeNtdll ntdll_;
};
INSTANTIATE_TEST_SUITE_P(, OfSystem, ::testing::Values(true, false),
                         [](const auto& each) { return each.param ? "Wine" : "Windows"; });

TEST_P(OfSystem, ListIsFoundInTheCode) {
  const MadeUpMemory memory = ntdll_.memory();
  const auto list = windows::find_list(memory, kBase);
  ASSERT_TRUE(list) << list.error().text();
  EXPECT_EQ(list->head, kHead);
  EXPECT_EQ(list->of_wine, GetParam());
  EXPECT_EQ(*windows::find_tables(memory, kBase), kBase);
  EXPECT_TRUE(windows::read_tables(memory, *list).empty());
}

TEST_P(OfSystem, OtherImagesHaveNone) {
  const auto finds = [&] { return windows::find_list(ntdll_.memory(), kBase).has_value(); };
  ASSERT_TRUE(finds());
  EXPECT_FALSE(windows::find_list(ntdll_.memory(), kBase + 0x1000));
  ntdll_.name = "kernel32.dll";
  EXPECT_FALSE(finds());
  ntdll_ = {.of_wine = GetParam(), .machine = image::PeMachine::kArm64};
  EXPECT_FALSE(finds());
  ntdll_ = {.of_wine = GetParam(), .data_is_writable = false};
  EXPECT_FALSE(finds());
  ntdll_ = {.of_wine = GetParam()};
  MadeUpMemory memory = ntdll_.memory();
  memory.put<std::uint64_t>(kHead + 8, 0x1234);  // no list is there
  EXPECT_FALSE(windows::find_list(memory, kBase));
  for (const std::size_t there : {0x10, 0x800, 0x1800, 0x2800, 0x3020}) {  // parts of the image are not
    MadeUpMemory part = ntdll_.memory();
    part.bytes.resize(there);
    EXPECT_FALSE(windows::find_list(part, kBase)) << there;
  }
}

TEST_P(OfSystem, TablesAreReadInTheirOrder) {
  MadeUpMemory memory = ntdll_.memory();
  ntdll_.append_table(memory, kRoom, 0x10000, 0x20000, kRoom + 0x1000, 3);
  ntdll_.append_table(memory, kRoom + 0x100, 0x30000, 0x40000, 0, 0, 0x5555, kRoom + 0x2000);
  const auto list = windows::find_list(memory, kBase);
  ASSERT_TRUE(list);
  const auto tables = windows::read_tables(memory, *list);
  ASSERT_EQ(tables.size(), 2U);
  EXPECT_EQ(tables[0].address, kRoom);
  EXPECT_EQ(tables[0].begin, 0x10000U);
  EXPECT_EQ(tables[0].end, 0x20000U);
  EXPECT_EQ(tables[0].base, 0x10000U);
  EXPECT_EQ(tables[0].functions, kRoom + 0x1000);
  EXPECT_EQ(tables[0].count, 3U);
  EXPECT_EQ(tables[0].callback, 0U);
  EXPECT_EQ(tables[1].callback, 0x5555U);
  EXPECT_EQ(windows::function_at(memory, tables[1], 0x30010).error().code, ErrorCode::kUnsupported);
  const char16_t path[] = u"C:\\a\u00e9\x1b.dll";
  for (std::size_t i = 0; i < std::size(path); ++i)
    memory.put<std::uint16_t>(kRoom + 0x2000 + 2 * i, static_cast<std::uint16_t>(path[i]));
  EXPECT_EQ(windows::library_of(memory, tables[1]), GetParam() ? "" : "C:\\a??.dll");
  // They come, grow and go.
  EXPECT_TRUE(windows::is_still(memory, *list, tables[0]));
  memory.put<std::uint32_t>(kRoom + (GetParam() ? 0x28 : 0x54), 4);
  EXPECT_TRUE(windows::is_still(memory, *list, tables[0]));
  FakeNtdll::put_link(memory, kHead, kRoom + 0x100, kRoom + 0x100);
  EXPECT_FALSE(windows::is_still(memory, *list, tables[0]));
}

TEST_P(OfSystem, ListsThatLieEnd) {
  MadeUpMemory memory = ntdll_.memory();
  ntdll_.append_table(memory, kRoom, 0x10000, 0x20000, kRoom + 0x1000, 3);
  const auto list = windows::find_list(memory, kBase);
  ASSERT_TRUE(list);
  memory.put<std::uint64_t>(kRoom, kRoom);  // a circle without the head
  EXPECT_EQ(windows::read_tables(memory, *list).size(), windows::kMostTables);
  memory.put<std::uint64_t>(kRoom, FakeNtdll::kEnd - 8);  // cut
  EXPECT_EQ(windows::read_tables(memory, *list).size(), 1U);
  memory.put<std::uint64_t>(kRoom, 0);
  EXPECT_EQ(windows::read_tables(memory, *list).size(), 1U);
}

void put_function(MadeUpMemory& memory, std::uint64_t at, std::uint32_t begin, std::uint32_t end, std::uint32_t info) {
  memory.put(at, winx64::RuntimeFunction{begin, end, info});
}

TEST(WindowsTables, FunctionsAreSearched) {
  MadeUpMemory memory = FakeNtdll().memory();
  Table table{.begin = 0x10000, .end = 0x20000, .base = 0x10000, .functions = kRoom, .count = 100};
  for (std::uint32_t i = 0; i < 100; ++i) put_function(memory, kRoom + 12 * i, 0x100 * i, 0x100 * i + 0x80, i);
  for (std::uint32_t i = 0; i < 100; ++i) {
    EXPECT_EQ(windows::function_at(memory, table, 0x10000 + 0x100 * i)->info, i);
    EXPECT_EQ(windows::function_at(memory, table, 0x1007f + 0x100 * i)->info, i);
    EXPECT_EQ(windows::function_at(memory, table, 0x10080 + 0x100 * i).error().code, ErrorCode::kNotFound);
  }
  EXPECT_FALSE(windows::function_at(memory, table, 0xffff));
  EXPECT_FALSE(windows::function_at(memory, table, 0x2'0001'0000));
  put_function(memory, kRoom, 0x9000, 0x9010, 77);  // no longer sorted
  table.sorted = false;
  EXPECT_EQ(windows::function_at(memory, table, 0x19008)->info, 77U);
  EXPECT_EQ(windows::function_at(memory, table, 0x10208)->info, 2U);
  table.functions = FakeNtdll::kEnd - 24;  // most of it is not there
  EXPECT_FALSE(windows::function_at(memory, table, 0x10208));
  table.sorted = true;
  EXPECT_FALSE(windows::function_at(memory, table, 0x10208));
}

// push rbx; sub rsp, 32; nops; add rsp, 32; pop rbx; ret: over more than a page.
class TableRows : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kCode = kRoom + 0x10000, kEnd = kCode + 0x1800, kExit = kEnd - 6;
  static constexpr std::uint32_t kInfo = 0x8000;

  void SetUp() override {
    put({0x53, 0x48, 0x83, 0xec, 0x20}, kCode);
    for (std::uint64_t at = kCode + 5; at < kExit; ++at) memory_->put<std::uint8_t>(at, 0x90);
    put({0x48, 0x83, 0xc4, 0x20, 0x5b, 0xc3}, kExit);
    put({1, 5, 2, 0, 5, 0x32, 1, 0x30}, kCode + kInfo);
    put_function(*memory_, kRoom + 0x1000, 0, kEnd - kCode, kInfo);
    FakeNtdll().append_table(*memory_, kRoom, kCode, kCode + 0x2000, kRoom + 0x1000, 1);
    runtime_ = windows::open(memory_, kBase);
  }
  void put(std::initializer_list<std::uint8_t> bytes, std::uint64_t at) {
    for (const std::uint8_t byte : bytes) memory_->put(at++, byte);
  }
  FrameRow row_at(std::uint64_t address) {
    FrameRow row;
    const auto method = runtime_->method_at(address);
    EXPECT_TRUE(method) << method.error().text();
    if (!method) return row;
    EXPECT_TRUE((*method)->contains(address));
    const auto found = (*method)->row_at(address, row);
    EXPECT_TRUE(found) << found.error().text();
    EXPECT_LE(row.begin, address);
    EXPECT_GT(row.end, address);
    return row;
  }

  std::shared_ptr<MadeUpMemory> memory_ = std::make_shared<MadeUpMemory>(FakeNtdll().memory());
  std::unique_ptr<Runtime> runtime_;
};

TEST_F(TableRows, AreThoseOfCodesAndCode) {
  EXPECT_TRUE(runtime_->is_understood());
  const auto at_rsp = [](std::int32_t offset) { return CfaRule::at(x86_64::kRsp, offset); };
  EXPECT_EQ(row_at(kCode).cfa, at_rsp(8));
  EXPECT_EQ(row_at(kCode + 1).cfa, at_rsp(16));
  EXPECT_EQ(row_at(kCode + 5).cfa, at_rsp(48));
  EXPECT_EQ(row_at(kCode + 0x1000).cfa, at_rsp(48));
  EXPECT_EQ(row_at(kCode + 0x1000).registers.find(x86_64::kRbx)->offset(), -16);
  EXPECT_EQ(row_at(kExit).cfa, at_rsp(48));
  EXPECT_EQ(row_at(kExit + 4).cfa, at_rsp(16));
  EXPECT_EQ(row_at(kExit + 5).cfa, at_rsp(8));
  EXPECT_EQ(runtime_->method_at(kEnd).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(runtime_->method_at(kCode - 1).error().code, ErrorCode::kNotFound);
}

TEST_F(TableRows, ChangesAreNoticed) {
  const auto unchanged = [&](auto&& change) {
    const auto method = runtime_->method_at(kCode);
    EXPECT_TRUE(method && runtime_->is_still(**method));
    change();
    return method && runtime_->is_still(**method);
  };
  EXPECT_TRUE(unchanged([] {}));
  EXPECT_TRUE(unchanged([&] { memory_->put<std::uint8_t>(kEnd - 1, 0xc3); }));            // in another page
  EXPECT_FALSE(unchanged([&] { memory_->put<std::uint8_t>(kCode + 0x800, 0xcc); }));      // code
  EXPECT_FALSE(unchanged([&] { memory_->put<std::uint8_t>(kCode + kInfo + 5, 0x42); }));  // a code
  EXPECT_FALSE(unchanged([&] {
    memory_->put<std::uint32_t>(kRoom + 0x1008, kInfo + 0x40);
    put({1, 0, 0, 0}, kCode + kInfo + 0x40);
  }));
  EXPECT_FALSE(unchanged([&] { FakeNtdll::put_link(*memory_, kHead, kHead, kHead); }));  // the table is gone
  EXPECT_FALSE(runtime_->is_understood());
}

TEST_F(TableRows, DamagedRecordsAreErrors) {
  put({1 | 4 << 3, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0}, kCode + kInfo);  // chained to itself
  memory_->put<std::uint32_t>(kCode + kInfo + 12, kInfo);
  EXPECT_EQ(runtime_->method_at(kCode).error().code, ErrorCode::kLimit);
  put({7, 0, 0, 0}, kCode + kInfo);
  EXPECT_FALSE(runtime_->method_at(kCode));
  memory_->put<std::uint32_t>(kRoom + 0x1008, 0x7fff'fff0);
  EXPECT_EQ(runtime_->method_at(kCode).error().code, ErrorCode::kUnreadable);
  memory_->put<std::uint32_t>(kRoom + 0x1008, 0x7fff'fff1);  // an indirect entry
  EXPECT_EQ(runtime_->method_at(kCode).error().code, ErrorCode::kUnreadable);
  memory_->put<std::uint32_t>(kRoom + 0x1008, kInfo);
  put({1, 5, 2, 0, 5, 0x32, 1, 0x30}, kCode + kInfo);
  EXPECT_TRUE(runtime_->method_at(kCode));
}

TEST_F(TableRows, CallbacksAreAProblem) {
  EXPECT_FALSE(runtime_->problem());
  FakeNtdll().append_table(*memory_, kRoom + 0x200, 0x30000, 0x40000, 0, 0, 0x5555);
  ASSERT_TRUE(runtime_->problem());
  EXPECT_EQ(runtime_->problem()->where, 0x30000U);
  EXPECT_EQ(runtime_->method_at(0x30010).error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace windlass::runtimes
