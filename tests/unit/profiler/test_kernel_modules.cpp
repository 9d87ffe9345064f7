#include "profiler/kernel/kernel_modules.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>

#include "lookup/table/builder.h"
#include "windlass_process_layout.h"

namespace windlass::profiler {
namespace {

table::TraceRule plain_rule() {
  table::TraceRule rule{};
  rule.cfa_kind = WL_CFA_REG;
  return rule;
}

table::UnwindTable small_table(const table::TraceRule& rule = plain_rule()) {
  table::TableBuilder builder;
  builder.begin_function(0x1000, 0x1010);
  builder.row(0x1000, rule);
  builder.end_function();
  return *builder.finish();
}

class KernelModulesTest : public testing::Test {
 protected:
  std::array<wl_module, 3> list{};
  std::unique_ptr<table::Arena> arena = *table::Arena::create({}, 4);
  wl_way way{};
  KernelModules modules{list, *arena, way};

  static constexpr std::uint32_t kOutside = 17;
};

TEST_F(KernelModulesTest, ATableMakesAModuleReady) {
  const auto id = modules.add_module();
  ASSERT_TRUE(id);
  EXPECT_EQ(list[*id].state, WL_MODULE_PENDING);
  EXPECT_EQ(list[*id].x_reg, WL_NO_XREG);
  ASSERT_TRUE(modules.load_table(*id, small_table()));
  EXPECT_EQ(list[*id].state, WL_MODULE_READY);
  EXPECT_EQ(list[*id].page_count, 1u);
  EXPECT_NE(list[*id].directory, 0u);
  EXPECT_NE(list[*id].palette, 0u);
}

TEST_F(KernelModulesTest, TheWayToOtherStacksIsThatOfTheLastTableWithOne) {
  table::TraceRule rule{};
  rule.cfa_kind = WL_CFA_THREAD;
  rule.way_first = -8, rule.way_second = 6, rule.way_sp = 7, rule.last.words = 0xc0 / 8, rule.last.addend = 2;
  ASSERT_TRUE(modules.load_table(*modules.add_module(), small_table()));
  EXPECT_EQ(way.there, 0);
  ASSERT_TRUE(modules.load_table(*modules.add_module(), small_table(rule)));
  const auto is_the_first = [&] {
    return way.there == 1 && way.first == -8 && way.second == 6 && way.sp == 7 && way.keeper == 0xc0 / 8 &&
           way.end == 0;
  };
  EXPECT_TRUE(is_the_first());
  rule.way_first = 1 << 16;
  ASSERT_TRUE(modules.load_table(*modules.add_module(), small_table(rule)));
  EXPECT_TRUE(is_the_first()) << "one that has no room";
}

TEST_F(KernelModulesTest, ARefusedTableLeavesNothingInTheArena) {
  const auto id = modules.add_module();
  ASSERT_TRUE(id);
  ASSERT_TRUE(modules.load_table(*id, small_table()));
  const std::uint64_t before = arena->bytes_used();
  for (const std::uint32_t refused : {*id, kOutside}) {
    const auto loaded = modules.load_table(refused, small_table());
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, EINVAL);
  }
  EXPECT_EQ(arena->bytes_used(), before);
}

TEST_F(KernelModulesTest, AFullListIsAnError) {
  for (std::size_t i = 0; i < list.size(); ++i) ASSERT_TRUE(modules.add_module());
  const auto one_more = modules.add_module();
  ASSERT_FALSE(one_more);
  EXPECT_EQ(one_more.error().code, ENOSPC);
}

TEST_F(KernelModulesTest, ARemovedModuleStaysWhileAMappingSetUsesIt) {
  const auto id = modules.add_module();
  ASSERT_TRUE(modules.load_table(*id, small_table()));
  const std::array<std::uint32_t, 2> used{*id, kOutside};
  modules.add_user(used);
  modules.add_user(used);
  modules.remove_module(*id);
  EXPECT_EQ(list[*id].state, WL_MODULE_READY) << "walks may be in it";
  modules.remove_user(used);
  EXPECT_EQ(list[*id].state, WL_MODULE_READY);
  EXPECT_NE(arena->bytes_used(), 0u);
  modules.remove_user(used);
  EXPECT_EQ(list[*id].state, WL_MODULE_PENDING);
  EXPECT_EQ(arena->bytes_used(), 0u);
  EXPECT_EQ(modules.add_module().value(), *id) << "its number is given out again";
}

TEST_F(KernelModulesTest, RemovingTwiceOrWhatNeverWasDoesNothing) {
  const auto id = modules.add_module();
  modules.remove_module(*id);
  modules.remove_module(*id);
  modules.remove_module(kOutside);
  EXPECT_EQ(modules.add_module().value(), *id);
  EXPECT_NE(modules.add_module().value(), *id) << "given out once only";
}

}  // namespace
}  // namespace windlass::profiler
