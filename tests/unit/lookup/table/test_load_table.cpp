#include <gtest/gtest.h>

#include <memory>

#include "lookup/table/arena.h"
#include "lookup/table/builder.h"
#include "lookup/table/unwind_table.h"

namespace windlass::table {
namespace {

std::unique_ptr<Arena> make_arena(std::uint32_t chunks) { return std::move(*Arena::create({}, chunks)); }

template <typename T>
const T* object(const Arena& arena, std::uint32_t ref) {
  return reinterpret_cast<const T*>(arena.at(ref));
}

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
  const auto arena = make_arena(64);
  const auto placed = load_table(table, *arena);
  ASSERT_TRUE(placed);
  const wl_module& module = placed->module;
  EXPECT_EQ(module.first_page, 1u);
  EXPECT_EQ(module.page_count, table.directory().size());
  EXPECT_EQ(module.x_reg, 3);
  EXPECT_EQ(module.state, WL_MODULE_READY);
  const auto* directory = object<std::uint32_t>(*arena, module.directory);
  const auto* palette = object<wl_rule>(*arena, module.palette);
  EXPECT_EQ(palette[0].cfa_kind, WL_CFA_NONE);

  int rows = 0;
  for (std::uint32_t n = 0; n < module.page_count; ++n) {
    ASSERT_NE(directory[n], 0u);
    const auto* page = object<std::byte>(*arena, directory[n]);
    const PageShape shape = UnwindTable::shape(page);
    const auto* row = reinterpret_cast<const std::uint16_t*>(page + sizeof(wl_page_head));
    const auto* escape = reinterpret_cast<const wl_escape*>(page + shape.escapes_offset + 8);
    for (std::uint32_t i = 0; i < shape.rows && rows < kRules; ++i, ++rows) {
      const bool escaped = (row[i] & 0xff) == WL_RULE_ESCAPE;
      const wl_rule& rule = escaped ? *object<wl_rule>(*arena, escape->rule) : palette[row[i] & 0xff];
      ASSERT_EQ(rule.cfa_offset, rows);
      if (!escaped) continue;
      ASSERT_EQ(escape->page_offset, (static_cast<std::uint32_t>(rows) * 16) & 0xffff);
      ++escape;
    }
  }
  EXPECT_EQ(rows, kRules);
}

// An arena with room for the first pieces only, whichever is the first that does not fit.
TEST(LoadTable, AFullArenaGetsEverythingBack) {
  const UnwindTable table = table_with_rules(5000);
  const auto roomy = make_arena(1);
  const auto whole = load_table(table, *roomy);
  ASSERT_TRUE(whole);
  ASSERT_GE(whole->pieces.size(), 5U);  // palette, escape rules, directory, two pages
  std::uint32_t room = 0;
  for (const ArenaPiece& piece : whole->pieces) {
    const auto arena = make_arena(1);
    const std::uint32_t taken = WL_CHUNK_SIZE - 8 - room;
    ASSERT_TRUE(arena->allocate(taken));
    const auto placed = load_table(table, *arena);
    ASSERT_FALSE(placed);
    EXPECT_EQ(placed.error().code, ErrorCode::kLimit);
    EXPECT_EQ(arena->bytes_used(), taken);
    room += (piece.bytes + 7) & ~7U;
  }
  EXPECT_EQ(roomy->bytes_used(), room);
  for (const ArenaPiece& piece : whole->pieces) roomy->free(piece.ref, piece.bytes);
  EXPECT_EQ(roomy->bytes_used(), 0U);
}

TEST(LoadTable, EmptyTable) {
  const auto arena = make_arena(1);
  const auto placed = load_table(UnwindTable(), *arena);
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->module.page_count, 0u);
}

}  // namespace
}  // namespace windlass::table
