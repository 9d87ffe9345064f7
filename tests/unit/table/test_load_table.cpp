#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "table/builder.h"
#include "table/unwind_table.h"

namespace windlass::table {
namespace {

// Hands out memory front to back, never over a chunk's end; fails after `budget` allocations.
class TestArena : public Arena {
 public:
  explicit TestArena(int budget = 1 << 30) : budget_(budget), memory_(64 * (WL_CHUNK_SIZE / 8)) {}
  Expected<ArenaObject> allocate(std::uint32_t bytes) override {
    if (budget_-- == 0) return fail(ErrorCode::kLimit, "test arena is full", next_, bytes);
    EXPECT_LE(bytes, WL_CHUNK_SIZE - 8);
    if (next_ % WL_CHUNK_SIZE + bytes > WL_CHUNK_SIZE) next_ = (next_ / WL_CHUNK_SIZE + 1) * WL_CHUNK_SIZE;
    const ArenaObject object{at<std::byte>(static_cast<std::uint32_t>(next_ >> WL_REF_SHIFT)),
                             static_cast<std::uint32_t>(next_ >> WL_REF_SHIFT)};
    std::memset(object.data, 0xee, bytes);
    live_[object.ref] = bytes;
    next_ = (next_ + bytes + 7) & ~7ull;
    return object;
  }
  void release(std::uint32_t ref, std::uint32_t bytes) override {
    EXPECT_EQ(live_[ref], bytes);
    live_.erase(ref);
  }
  template <typename T>
  T* at(std::uint32_t ref) {
    return reinterpret_cast<T*>(memory_.data() + ref);
  }
  std::map<std::uint32_t, std::uint32_t> live_;

 private:
  int budget_;
  std::vector<std::uint64_t> memory_;
  std::uint64_t next_ = 8;
};

UnwindTable table_with_rules(int rules) {
  TableBuilder builder;
  builder.set_x_reg(3);
  builder.begin_function(0x10000, 0x10000 + static_cast<std::uint64_t>(rules) * 16);
  for (int i = 0; i < rules; ++i) {
    TraceRule rule{};
    rule.cfa_kind = WL_CFA_REG;
    rule.cfa_offset = i;
    builder.row(0x10000 + static_cast<std::uint64_t>(i) * 16, rule);
  }
  builder.end_function();
  return *builder.finish();
}

TEST(LoadTable, EveryPagePaletteAndEscapeCanBeReached) {
  constexpr int kRules = 100000;
  const UnwindTable table = table_with_rules(kRules);
  TestArena arena;
  const auto placed = load_table(table, arena);
  ASSERT_TRUE(placed);
  const wl_module& module = placed->module;
  EXPECT_EQ(module.first_page, 1u);
  EXPECT_EQ(module.page_count, table.directory().size());
  EXPECT_EQ(module.x_reg, 3);
  EXPECT_EQ(module.state, WL_MODULE_READY);
  EXPECT_EQ(arena.live_.size(), placed->pieces.size());
  const auto* directory = arena.at<std::uint32_t>(module.directory);
  const auto* palette = arena.at<wl_rule>(module.palette);
  EXPECT_EQ(palette[0].cfa_kind, WL_CFA_NONE);

  int rows = 0;
  for (std::uint32_t n = 0; n < module.page_count; ++n) {
    ASSERT_NE(directory[n], 0u);
    const auto* page = arena.at<std::byte>(directory[n]);
    const PageShape shape = UnwindTable::shape(page);
    const auto* row = reinterpret_cast<const std::uint16_t*>(page + sizeof(wl_page_head));
    const auto* escape = reinterpret_cast<const wl_escape*>(page + shape.escapes_offset + 8);
    for (std::uint32_t i = 0; i < shape.rows && rows < kRules; ++i, ++rows) {
      const bool escaped = (row[i] & 0xff) == WL_RULE_ESCAPE;
      const wl_rule& rule = escaped ? *arena.at<wl_rule>(escape->rule) : palette[row[i] & 0xff];
      ASSERT_EQ(rule.cfa_offset, rows);
      if (!escaped) continue;
      ASSERT_EQ(escape->page_offset, (static_cast<std::uint32_t>(rows) * 16) & 0xffff);
      ++escape;
    }
  }
  EXPECT_EQ(rows, kRules);
}

TEST(LoadTable, AFullArenaGetsEverythingBack) {
  const UnwindTable table = table_with_rules(5000);
  TestArena roomy;
  const std::size_t needed = load_table(table, roomy)->pieces.size();
  for (std::size_t budget = 0; budget < needed; ++budget) {
    TestArena arena(static_cast<int>(budget));
    const auto placed = load_table(table, arena);
    ASSERT_FALSE(placed);
    EXPECT_EQ(placed.error().code, ErrorCode::kLimit);
    EXPECT_TRUE(arena.live_.empty());
  }
}

TEST(LoadTable, EmptyTable) {
  TestArena arena;
  const auto placed = load_table(UnwindTable(), arena);
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->module.page_count, 0u);
}

}  // namespace
}  // namespace windlass::table
