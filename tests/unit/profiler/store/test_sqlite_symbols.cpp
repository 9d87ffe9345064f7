// Symbol files in a store in a file.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "profiler/store/open_store.h"
#include "support/store_contract.h"

namespace windlass::testing {
namespace {

namespace fs = std::filesystem;

ByteView bytes_of(const std::string& text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }

class SqliteSymbols : public ::testing::Test {
 protected:
  ~SqliteSymbols() override { fs::remove_all(folder_); }

  std::unique_ptr<store::ProfileStore> open(bool write, const store::History& keep = {}) {
    auto opened = store::open_store(path_, {.write = write, .keep = keep});
    EXPECT_TRUE(opened.has_value()) << opened.error().text();
    return std::move(*opened);
  }
  static bool put(store::ProfileStore& store, const std::string& id, std::uint64_t rank, const std::string& file) {
    const auto put = store.put_symbols({.build_id = id, .name = "lib", .rank = rank, .bytes = 0}, bytes_of(file));
    EXPECT_TRUE(put.has_value()) << put.error().text();
    return put.value_or(false);
  }
  static std::string symbols(store::ProfileStore& store, const std::string& id) {
    const auto file = store.symbols(id);
    EXPECT_TRUE(file.has_value()) << file.error().text();
    return file.value_or(std::nullopt).value_or("none");
  }

  fs::path folder_ = store_folder("windlass-symbols-");
  std::string path_ = folder_ / "profiles.db";
};

TEST_F(SqliteSymbols, AStoreHasNoneUntilOneIsPut) {
  const auto writer = open(true);
  EXPECT_EQ(symbols(*writer, "ab12"), "none");
  EXPECT_TRUE(writer->symbol_files()->empty());
  EXPECT_TRUE(put(*writer, "ab12", 1, std::string("a\0b", 3)));
  const auto reader = open(false);
  EXPECT_EQ(symbols(*reader, "ab12"), std::string("a\0b", 3));
  EXPECT_EQ(symbols(*reader, "ab"), "none");
  const std::vector<store::StoredSymbols> all{{.build_id = "ab12", .name = "lib", .rank = 1, .bytes = 3}};
  EXPECT_EQ(*reader->symbol_files(), all);
}

TEST_F(SqliteSymbols, AFileOfASmallerRankDoesNotTakeThePlace) {
  const auto writer = open(true);
  EXPECT_TRUE(put(*writer, "ab12", 2, "lines"));
  EXPECT_FALSE(put(*writer, "ab12", 1, "no lines"));
  EXPECT_EQ(symbols(*writer, "ab12"), "lines");
  EXPECT_TRUE(put(*writer, "ab12", 2, "newer"));
  EXPECT_EQ(symbols(*writer, "ab12"), "newer");
  EXPECT_EQ(writer->symbol_files()->size(), 1u);
}

// A program that opened the store before the table came goes on appending, and reads what came.
TEST_F(SqliteSymbols, AnAgentThatRunsMeanwhileGoesOn) {
  const auto agent = open(true);
  ASSERT_TRUE(agent->append(batch_at(0, events_profile()).batch()).value_or(false));
  EXPECT_TRUE(put(*open(true), "ab12", 1, "file"));
  EXPECT_TRUE(agent->append(batch_at(1, events_profile()).batch()).value_or(false));
  EXPECT_EQ(symbols(*agent, "ab12"), "file");
  EXPECT_EQ(open(false)->stacks({}, 0, ~std::uint64_t{0})->intervals, 2u);
}

// The bound is one of history: large symbols must not delete it.
TEST_F(SqliteSymbols, TheBoundOfHistoryDoesNotCountThem) {
  const auto writer = open(true, {.age_ns = 0, .bytes = 8u << 20});
  ASSERT_TRUE(put(*writer, "ab12", 1, std::string(12u << 20, 'x')));
  for (std::uint64_t i = 0; i < 4; ++i)
    ASSERT_TRUE(writer->append(batch_at(i, events_profile()).batch()).value_or(false));
  EXPECT_EQ(writer->stacks({}, 0, ~std::uint64_t{0})->intervals, 4u);
  EXPECT_EQ(symbols(*writer, "ab12").size(), 12u << 20);
}

TEST_F(SqliteSymbols, AReaderPutsNone) {
  open(true);
  const auto refused = open(false)->put_symbols({.build_id = "ab12", .name = {}, .rank = 1, .bytes = 0}, {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace windlass::testing
