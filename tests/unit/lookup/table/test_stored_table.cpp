#include "lookup/table/stored_table.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <span>

#include "lookup/table/arena.h"
#include "lookup/table/builder.h"

namespace windlass::table {
namespace {

constexpr std::uint64_t kBegin = 0x40010000;

// With more rules than the palette has, pages of one rule that are shared, and pages without rows.
UnwindTable varied_table(std::uint32_t rules) {
  std::mt19937 random(rules);
  TableBuilder builder;
  std::uint64_t at = kBegin;
  for (std::uint32_t function = 0; function < 60; ++function) {
    const std::uint64_t size = function % 20 == 7 ? 0x50000 : 0x100 + random() % 0x2000;
    builder.begin_function(at, at + size);
    for (std::uint64_t row = 0; row<size; row += size> 0x10000 ? size : 1 + random() % 90) {
      TraceRule rule{};
      rule.cfa_kind = WL_CFA_REG;
      rule.cfa_reg = 7;
      rule.cfa_offset = static_cast<std::int32_t>(random() % rules * 8);
      builder.row(at + row, rule);
    }
    builder.end_function();
    at += size + (function % 20 == 11 ? 0x60000 : random() % 40);
  }
  return *builder.finish();
}

ByteView view(const std::vector<std::byte>& bytes) { return {bytes.data(), bytes.size()}; }

// All that is done with a table.
std::uint64_t use(const UnwindTable& table) {
  std::uint64_t sum = 0;
  const std::uint64_t begin = table.first_page() << WL_PAGE_SHIFT;
  for (std::uint64_t page = 0; page < table.directory().size(); ++page)
    for (std::uint64_t offset = 0; offset < 1 << WL_PAGE_SHIFT; offset += 13)
      sum = sum * 31 + static_cast<std::uint64_t>(table.find(begin + (page << WL_PAGE_SHIFT) + offset).cfa_offset);
  const auto arena = Arena::create({}, 64);
  if (const auto loaded = load_table(table, **arena)) sum += loaded->pieces.size();
  return sum;
}

TEST(StoredTable, IsTheSameWhenReadAgain) {
  for (const std::uint32_t rules : {1U, 200U, 5000U}) {
    const UnwindTable table = varied_table(rules);
    const auto read = StoredTable::read(view(StoredTable::write(table)));
    ASSERT_TRUE(read);
    EXPECT_EQ(use(*read), use(table));
    EXPECT_EQ(read->first_page(), table.first_page());
    EXPECT_EQ(read->x_reg(), table.x_reg());
    EXPECT_EQ(read->stats().rows, table.stats().rows);
    EXPECT_EQ(read->bytes(), table.bytes());
  }
  const auto nothing = StoredTable::read(view(StoredTable::write(UnwindTable())));
  ASSERT_TRUE(nothing);
  EXPECT_TRUE(nothing->empty());
}

TEST(StoredTable, DamageIsFound) {
  const auto bytes = StoredTable::write(varied_table(300));
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    auto damaged = bytes;
    damaged[random() % damaged.size()] ^= static_cast<std::byte>(1 + random() % 255);
    ASSERT_FALSE(StoredTable::read(view(damaged)));
  }
  for (std::size_t size = 0; size < bytes.size(); size += 1 + size / 16)
    ASSERT_FALSE(StoredTable::read({bytes.data(), size})) << size;
}

// A right checksum over whatever is there.
TEST(StoredTable, WhatWasMadeToDeceiveLeadsNowhereElse) {
  const auto bytes = StoredTable::write(varied_table(300));
  std::mt19937 random(2);
  int taken = 0, refused = 0;
  for (int i = 0; i < 3000; ++i) {
    auto made_up = bytes;
    const std::size_t among = i % 3 == 0 ? 120 : made_up.size();  // the head, or all
    for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes)
      made_up[8 + random() % (among - 8)] = static_cast<std::byte>(random() % 4 == 0 ? 0xff : random());
    const std::uint64_t sum = StoredTable::checksum({made_up.data() + 8, made_up.size() - 8});
    std::memcpy(made_up.data(), &sum, sizeof sum);
    const auto read = StoredTable::read(view(made_up));
    ++(read ? taken : refused);
    if (read && read->directory().size() < 1000) (void)use(*read);
  }
  EXPECT_GT(taken, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace windlass::table
