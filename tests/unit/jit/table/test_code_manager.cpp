// A code manager compared with a std::map of the same functions, and its refusals.
#include "windlass/jit/code_manager.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtimes/manager/read.h"
#include "runtimes/manager/source.h"
#include "support/managed_rows.h"
#include "windlass/prologue.h"

namespace windlass {
namespace {

using test::managed_row;
using test::managed_rows;

constexpr std::uint64_t kBegin = 0x7f00'0000'1000;

CodeManager make(std::uint64_t size, const CodeManagerOptions& options = {}) {
  auto manager = CodeManager::create(kBegin, kBegin + size, options);
  EXPECT_TRUE(manager) << manager.error().text();
  return std::move(*manager);
}

std::string name_at(const CodeManager& manager, std::uint64_t address) {
  std::vector<char> room(1 << 16);
  const auto name = manager.reader().name(address, room);
  return name ? std::string(*name) : "?";
}

// The errors of a call: its code and place, and that it says something.
template <typename Result>
void expect_error(const Result& result, ErrorCode code, std::uint64_t where, const char* part) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, code) << result.error().text();
  EXPECT_EQ(result.error().where, where) << result.error().text();
  EXPECT_NE(std::string(result.error().what).find(part), std::string::npos) << result.error().what;
}

TEST(CodeManager, APrologueIsItsRows) {
  CodeManager manager = make(1 << 20);
  Prologue prologue{.architecture = kOwnArchitecture, .code_size = 64, .ops = {{4, prologue::Allocate{32}}}};
  prologue.epilogues = {mirrored(prologue, 40)};
  const auto rows = prologue::rows_of(prologue);
  ASSERT_TRUE(rows) << rows.error().text();
  const GeneratedFunction function{.address = kBegin, .size = 64, .name = "f", .prologue = &prologue};
  GeneratedFunction next = function;
  next.address += 64;
  ASSERT_TRUE(manager.add(std::vector{function, next}));
  for (const GeneratedFunction& at : {function, next})
    for (const FrameRow& row : *rows) {
      FrameRow found;
      ASSERT_TRUE(manager.reader().row_at(at.address + row.begin, found));
      EXPECT_EQ(found.begin, at.address + row.begin);
      EXPECT_EQ(found.end, at.address + row.end);
      EXPECT_EQ(found.cfa, row.cfa);
    }

  GeneratedFunction wrong = function;
  wrong.address += 128;
  wrong.size = 65;
  expect_error(manager.add(std::vector{wrong}), ErrorCode::kMalformed, wrong.address, "size the prologue says");
  wrong.size = 64;
  wrong.rows = *rows;
  expect_error(manager.add(std::vector{wrong}), ErrorCode::kMalformed, wrong.address, "by a prologue or by rows");
  EXPECT_EQ(manager.functions(), 2U);
}

TEST(CodeManager, FindsWhatWasAdded) {
  CodeManager manager = make(1 << 20);
  const auto rows = managed_rows(100, 64);
  ASSERT_TRUE(manager.add({{kBegin + 0x40, 100, "first", 7, rows}, {kBegin + 0x1000, 0x5000, "second", 8, {}}}));
  EXPECT_EQ(manager.functions(), 2u);
  for (const std::uint64_t inside : {0x40u, 0x41u, 0x40u + 99}) {
    const auto found = manager.reader().find(kBegin + inside);
    ASSERT_TRUE(found) << inside;
    EXPECT_EQ(found->begin, kBegin + 0x40);
    EXPECT_EQ(found->size, 100u);
    EXPECT_EQ(found->user, 7u);
    EXPECT_TRUE(found->described);
  }
  for (const std::uint64_t outside : {0x3fu, 0x40u + 100, 0xfffu, 0x6000u, 0xfffffu})
    expect_error(manager.reader().find(kBegin + outside), ErrorCode::kNotFound, kBegin + outside, "no function");
  expect_error(manager.reader().find(kBegin - 1), ErrorCode::kNotFound, kBegin - 1, "no function");
  expect_error(manager.reader().find(kBegin + (1 << 20)), ErrorCode::kNotFound, kBegin + (1 << 20), "no function");
  for (const std::uint64_t inside : {0x1000u, 0x3333u, 0x5fffu}) EXPECT_EQ(name_at(manager, kBegin + inside), "second");
  EXPECT_FALSE(manager.reader().find(kBegin + 0x2000)->described);

  ASSERT_TRUE(manager.remove({kBegin + 0x40}));
  EXPECT_FALSE(manager.reader().find(kBegin + 0x41));
  EXPECT_EQ(manager.functions(), 1u);
}

// Neighbours of all sizes and at all places, an eighth of them in blocks into which others reach, added and taken away
// in any order. Each address of the code must give the answer of a map of the same functions.
void compare_with_map(unsigned seed, std::uint32_t largest) {
  constexpr std::uint32_t kCode = 1 << 15;
  CodeManager manager = make(kCode, {.functions = 600, .shape_bytes = 1 << 16, .name_bytes = 1 << 16});
  std::map<std::uint32_t, std::uint32_t> model;  // begin -> size
  std::mt19937 random(seed);
  const auto check = [&] {
    for (std::uint32_t offset = 0; offset < kCode; ++offset) {
      const auto found = manager.reader().find(kBegin + offset);
      auto expected = model.upper_bound(offset);
      const bool there = expected != model.begin() && (--expected, offset - expected->first < expected->second);
      ASSERT_EQ(found.has_value(), there) << offset;
      if (!there) continue;
      ASSERT_EQ(found->begin, kBegin + expected->first) << offset;
      ASSERT_EQ(found->size, expected->second);
      ASSERT_EQ(found->user, expected->first * 3);
    }
  };
  for (int round = 0; round < 3000; ++round) {
    if (random() % 3 != 0) {
      const std::uint32_t begin = random() % kCode, size = 1 + random() % largest;
      const auto behind = model.lower_bound(begin);
      const bool free = begin + size <= kCode && (behind == model.end() || behind->first >= begin + size) &&
                        (behind == model.begin() || std::prev(behind)->first + std::prev(behind)->second <= begin);
      const auto added = manager.add({{kBegin + begin, size, std::string(random() % 9, 'x'), begin * 3, {}}});
      ASSERT_EQ(added.has_value(), free && model.size() < 600) << begin << " " << size;
      if (added) model[begin] = size;
    } else if (!model.empty()) {
      auto gone = model.lower_bound(random() % kCode);
      if (gone == model.end()) gone = model.begin();
      ASSERT_TRUE(manager.remove({kBegin + gone->first}));
      model.erase(gone);
    }
    if (round % 100 == 0) check();
    if (testing::Test::HasFatalFailure()) return;
  }
  check();
  EXPECT_EQ(manager.functions(), model.size());
}

TEST(CodeManager, IsAMapOfTinyFunctions) { compare_with_map(1, 4); }
TEST(CodeManager, IsAMapOfSmallFunctions) { compare_with_map(2, 60); }
TEST(CodeManager, IsAMapOfFunctionsOfSeveralBlocks) { compare_with_map(3, 2000); }

TEST(CodeManager, HasAFunctionABytes) {
  CodeManager manager = make(1024);
  std::vector<GeneratedFunction> functions;
  for (std::uint32_t i = 0; i < 1024; ++i) functions.push_back({kBegin + i, 1, {}, i, {}});
  ASSERT_TRUE(manager.add(functions));
  for (std::uint32_t i = 0; i < 1024; ++i) EXPECT_EQ(manager.reader().find(kBegin + i)->user, i);
}

TEST(CodeManager, ReachesThrough4GiB) {
  CodeManager manager = make(1ull << 32);
  const std::uint64_t last = kBegin + (1ull << 32) - 1;
  ASSERT_TRUE(manager.add({{last - 0x12, 0x13, "end", 1, {}}, {kBegin + 3, 0x7000'0000, "large", 2, {}}}));
  EXPECT_EQ(manager.reader().find(last)->user, 1u);
  EXPECT_EQ(manager.reader().find(kBegin + 0x7000'0002)->begin, kBegin + 3);
  EXPECT_FALSE(manager.reader().find(kBegin + 0x7000'0003));
  ASSERT_TRUE(manager.remove({kBegin + 3}));
  EXPECT_FALSE(manager.reader().find(kBegin + 0x100'0000));
}

// ---- rows ---------------------------------------------------------------------------------------------------------

bool same_row(const FrameRow& a, const FrameRow& b) {
  if (a.cfa != b.cfa || a.return_address != b.return_address || a.signal_frame != b.signal_frame ||
      a.return_signed != b.return_signed || a.registers.size() != b.registers.size() ||
      a.expressions.size() != b.expressions.size() ||
      !std::equal(a.expressions.data(), a.expressions.data() + a.expressions.size(), b.expressions.data()))
    return false;
  for (auto left = a.registers.begin(), right = b.registers.begin(); left != a.registers.end(); ++left, ++right)
    if ((*left).reg != (*right).reg || (*left).rule != (*right).rule) return false;
  return true;
}

void expect_rows(const CodeManager& manager, std::uint64_t begin, std::uint64_t size,
                 const std::vector<FrameRow>& rows) {
  for (std::uint64_t inside = 0; inside < size; ++inside) {
    const FrameRow* expected = nullptr;
    for (const FrameRow& row : rows)
      if (inside >= row.begin && inside < row.end) expected = &row;
    FrameRow found;
    const auto status = manager.reader().row_at(begin + inside, found);
    ASSERT_EQ(status.has_value(), expected != nullptr) << inside;
    if (expected == nullptr) continue;
    ASSERT_TRUE(same_row(found, *expected)) << inside;
    ASSERT_EQ(found.begin, begin + expected->begin);
    ASSERT_EQ(found.end, begin + expected->end);
  }
}

TEST(CodeManager, KeepsRowsWithAllRegisters) {
  CodeManager manager = make(1 << 16);
  std::vector<FrameRow> rows = managed_rows(200, 64);
  rows[0].end = rows[1].begin = 1;
  rows[3].signal_frame = true;
  rows[3].return_signed = true;
  // A gap, an expression, and every register a row has room for.
  rows[1].end = 3;
  const std::array<std::byte, 5> expression = {std::byte{0x77}, std::byte{8}, std::byte{6}, std::byte{0x23},
                                               std::byte{9}};
  rows[2].expressions = ByteView(expression.data(), expression.size());
  rows[2].cfa = CfaRule::expression({0, 3});
  rows[1].registers.clear();
  for (unsigned i = 0; i < RegisterRules::kCapacity; ++i)
    rows[1].registers.append(static_cast<RegisterNumber>(i * 5), RegisterRule::register_value(3, -static_cast<int>(i)));
  ASSERT_TRUE(manager.add({{kBegin + 17, 200, "f", 0, rows}}));
  expect_rows(manager, kBegin + 17, 200, rows);

  // Copied where there is room, and said where there is none.
  std::byte room[8];
  FrameRow found;
  ASSERT_TRUE(manager.reader().row_at(kBegin + 17 + 100, found, room));
  EXPECT_EQ(found.expressions.data(), room);
  const auto refused = manager.reader().row_at(kBegin + 17 + 100, found, std::span(room, 4));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kLimit);
}

TEST(CodeManager, TakesRowsOfAPrologue) {
  CodeManager manager = make(1 << 16);
  Prologue prologue{.architecture = Architecture::kX86_64, .code_size = 40};
  prologue.ops = {{1, prologue::push(3)}, {5, prologue::Allocate{32}}};
  prologue.epilogues = {mirrored(prologue, 34)};
  const auto rows = prologue::rows_of(prologue);
  ASSERT_TRUE(rows);
  ASSERT_TRUE(manager.add({{kBegin, 40, "f", 0, *rows}}));
  expect_rows(manager, kBegin, 40, *rows);
}

// Functions of any size with the same prologue and epilogue have one shape.
TEST(CodeManager, SharesRowsByShape) {
  // Room for two shapes of four rows, and no third one.
  CodeManager manager = make(1 << 20, {.functions = 1000, .shape_bytes = 600, .name_bytes = 64});
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const auto rows = managed_rows(20 + i % 500, i % 2 == 0 ? 64 : 96);
    ASSERT_TRUE(manager.add({{kBegin + i * 1024, 20 + i % 500, {}, 0, rows}})) << i;
  }
  const auto third = managed_rows(50, 128);
  const std::uint64_t at = kBegin + 600;
  ASSERT_TRUE(manager.remove({kBegin + 1024}));
  expect_error(manager.add({{at, 50, {}, 0, third}}), ErrorCode::kLimit, at, "no room for more rows");
  // With its last user a shape goes, and leaves its room to the next one.
  std::vector<std::uint64_t> odd;
  for (std::uint64_t i = 3; i < 1000; i += 2) odd.push_back(kBegin + i * 1024);
  ASSERT_TRUE(manager.remove(odd));
  ASSERT_TRUE(manager.add({{at, 50, {}, 0, third}}));
  expect_rows(manager, at, 50, third);
  for (std::uint64_t i = 0; i < 1000; i += 2)
    expect_rows(manager, kBegin + i * 1024, 20 + i % 500, managed_rows(20 + i % 500, 64));
}

// Of 200,000 shapes some have the same 32-bit hash.
TEST(CodeManager, TakesNoShapeForAnotherOne) {
  constexpr std::uint32_t kShapes = 200'000;
  CodeManager manager = make(kShapes * 16, {.functions = kShapes});
  for (std::uint32_t i = 0; i < kShapes; ++i) {
    const FrameRow row = managed_row(0, 16, static_cast<std::int32_t>(i));
    ASSERT_TRUE(manager.add({{kBegin + i * 16, 16, {}, 0, std::span(&row, 1)}})) << i;
  }
  FrameRow row;
  for (std::uint32_t i = 0; i < kShapes; ++i) {
    ASSERT_TRUE(manager.reader().row_at(kBegin + i * 16, row));
    ASSERT_EQ(row.cfa.offset(), static_cast<std::int32_t>(i));
  }
}

TEST(CodeManager, HasTheRuleOfTraceWalks) {
  CodeManager manager = make(1 << 16);
  const auto rows = managed_rows(100, 64);
  ASSERT_TRUE(manager.add({{kBegin + 0x100, 100, {}, 0, rows}}));
  const auto rule = manager::rule_at(manager.reader(), kBegin + 0x100 + 50);
  ASSERT_TRUE(rule);
  EXPECT_EQ(rule->rule.cfa_kind, WL_CFA_REG);
  EXPECT_EQ(rule->rule.cfa_offset, 64);
  EXPECT_EQ(rule->rule.ra_kind, WL_REG_CFA);
  EXPECT_EQ(rule->rule.ra_offset, -8);
  EXPECT_EQ(rule->x_reg, WL_NO_XREG);
}

// As an unwind source: in order, with the rows of those that have some. The largest one has none, and costs nothing.
TEST(CodeManager, IsListedInOrder) {
  CodeManager manager = make(1ull << 32);
  const auto rows = managed_rows(100, 64);
  ASSERT_TRUE(manager.add({{kBegin + 0x180, 100, {}, 0, rows},
                           {kBegin + 0x1000, WL_CODE_MAX_SIZE, {}, 0, {}},
                           {kBegin + 0x1f0, 0x200, {}, 0, {}},
                           {kBegin + 0x101, 3, {}, 0, {}}}));
  const auto source = manager::make_source(manager.table(), manager.reader());
  std::vector<std::uint64_t> begins, listed;
  source->for_each_function(
      [&](const sources::Function& function) {
        begins.push_back(function.begin - kBegin);
        source->for_each_row(
            function, [&](const FrameRow& row) { listed.push_back(row.begin - kBegin); }, [](const Error&) {});
        return true;
      },
      [](const Error&) {});
  EXPECT_EQ(begins, (std::vector<std::uint64_t>{0x101, 0x180, 0x1f0, 0x1000}));
  EXPECT_EQ(listed, (std::vector<std::uint64_t>{0x180, 0x181, 0x185, 0x180 + 99}));
  EXPECT_EQ(source->function_start(kBegin + 0x1ff), kBegin + 0x1f0);
  EXPECT_EQ(source->function_start(kBegin + 0x100), 0u);
}

// ---- hostile ------------------------------------------------------------------------------------------------------

TEST(CodeManager, RefusesWhatCannotBe) {
  CodeManager manager = make(1 << 16);
  const char* range = "not within its manager's code";
  const std::uint64_t end = kBegin + (1 << 16);
  for (const auto& [address, size] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{{kBegin, 0},
                                                                                          {kBegin - 1, 2},
                                                                                          {end, 1},
                                                                                          {end - 1, 2},
                                                                                          {kBegin, ~0ull},
                                                                                          {~0ull, 2},
                                                                                          {0, 1},
                                                                                          {kBegin, 1 << 17}})
    expect_error(manager.add({{address, size, {}, 0, {}}}), ErrorCode::kOutOfRange, address, range);
  expect_error(CodeManager::create(5, 5), ErrorCode::kOutOfRange, 5, "at most 4 GiB");
  expect_error(CodeManager::create(6, 5), ErrorCode::kOutOfRange, 6, "at most 4 GiB");
  expect_error(CodeManager::create(0, (1ull << 32) + 1), ErrorCode::kOutOfRange, 0, "at most 4 GiB");
  expect_error(CodeManager::create(1, 2, {.functions = 0}), ErrorCode::kLimit, 1, "has room for");

  ASSERT_TRUE(manager.add({{kBegin + 100, 1000, "there", 0, {}}}));
  const char* overlap = "overlaps another one";
  for (const auto& [at, size] : std::vector<std::pair<unsigned, unsigned>>{
           {100, 1000}, {0, 101}, {1099, 1}, {500, 1}, {100, 1}, {0, 60000}, {99, 2}}) {
    const auto added = manager.add({{kBegin + at, size, {}, 0, {}}});
    expect_error(added, ErrorCode::kMalformed, kBegin + at, overlap);
    EXPECT_EQ(added.error().detail, kBegin + 100);
  }
  expect_error(manager.remove({kBegin + 101}), ErrorCode::kNotFound, kBegin + 101, "no managed function begins here");
  expect_error(manager.remove({kBegin - 1}), ErrorCode::kNotFound, kBegin - 1, "no managed function begins here");
  EXPECT_EQ(manager.functions(), 1u);

  FrameRow late = managed_row(5, 11, 8), empty = managed_row(3, 3, 8);
  const FrameRow twice[] = {managed_row(0, 5, 8), managed_row(4, 10, 8)};
  const std::uint64_t at = kBegin + 0x8000;
  expect_error(manager.add({{at, 10, {}, 0, std::span(&late, 1)}}), ErrorCode::kOutOfRange, at, "within its function");
  expect_error(manager.add({{at, 10, {}, 0, std::span(&empty, 1)}}), ErrorCode::kMalformed, at, "not ascending");
  expect_error(manager.add({{at, 10, {}, 0, twice}}), ErrorCode::kMalformed, at, "not ascending");
  EXPECT_FALSE(manager.reader().find(at));
}

// All or none of a call's functions, and all room is there again.
TEST(CodeManager, TakesBackWhatItCouldNotAddAllOf) {
  CodeManager manager = make(1 << 20, {.functions = 100, .shape_bytes = 1000, .name_bytes = 2000});
  const auto rows = managed_rows(64, 80);
  for (int round = 0; round < 50; ++round) {
    std::vector<GeneratedFunction> functions;
    for (std::uint32_t i = 0; i < 101; ++i) functions.push_back({kBegin + i * 64, 64, "a name", i, rows});
    expect_error(manager.add(functions), ErrorCode::kLimit, kBegin + 100 * 64, "no room for more functions");
    EXPECT_EQ(manager.functions(), 0u);
    for (std::uint32_t i = 0; i < 101; ++i) ASSERT_FALSE(manager.reader().find(kBegin + i * 64));
    functions.pop_back();
    functions.back().address = functions.front().address + 1;
    expect_error(manager.add(functions), ErrorCode::kMalformed, functions.back().address, "overlaps");
    functions.pop_back();
    ASSERT_TRUE(manager.add(functions));
    EXPECT_EQ(manager.functions(), 99u);
    std::vector<std::uint64_t> all;
    for (const GeneratedFunction& function : functions) all.push_back(function.address);
    ASSERT_TRUE(manager.remove(all));
  }
}

TEST(CodeManager, IsFullOfNames) {
  CodeManager manager = make(1 << 20, {.functions = 100, .shape_bytes = 64, .name_bytes = 70'000});
  const std::string longest(WL_CODE_MAX_NAME, 'n');
  expect_error(manager.add({{kBegin, 1, longest + "n", 0, {}}}), ErrorCode::kLimit, kBegin, "65,535 bytes");
  ASSERT_TRUE(manager.add({{kBegin, 1, longest, 0, {}}}));
  EXPECT_EQ(name_at(manager, kBegin), longest);
  expect_error(manager.add({{kBegin + 1, 1, longest, 0, {}}}), ErrorCode::kLimit, kBegin + 1, "no room for more names");
  ASSERT_TRUE(manager.remove({kBegin}));
  // Names of all lengths come and go; cut where the room given is smaller.
  for (unsigned i = 1; i < 500; ++i) {
    const std::string name = std::string(i, static_cast<char>('a' + i % 26));
    ASSERT_TRUE(manager.add({{kBegin, 1, name, 0, {}}})) << i;
    EXPECT_EQ(name_at(manager, kBegin), name);
    char room[9];
    EXPECT_EQ(*manager.reader().name(kBegin, room), name.substr(0, 9));
    ASSERT_TRUE(manager.remove({kBegin}));
  }
}

TEST(CodeManager, MovesFunctions) {
  CodeManager manager = make(1 << 16);
  const auto rows = managed_rows(64, 80);
  ASSERT_TRUE(manager.add({{kBegin, 64, "f", 1, rows}}));
  const std::uint64_t from[] = {kBegin};
  const GeneratedFunction to[] = {{kBegin + 32, 64, "f", 1, rows}};
  ASSERT_TRUE(manager.update(from, to));  // over where it was
  EXPECT_FALSE(manager.reader().find(kBegin + 31));
  EXPECT_EQ(manager.reader().find(kBegin + 95)->begin, kBegin + 32);
  EXPECT_EQ(name_at(manager, kBegin + 40), "f");
}

TEST(CodeManager, IsTheParentsAfterAFork) {
  CodeManager manager = make(1 << 16);
  ASSERT_TRUE(manager.add({{kBegin, 64, "f", 1, {}}}));
  const pid_t child = ::fork();
  if (child == 0) {
    const auto added = manager.add({{kBegin + 64, 64, "g", 1, {}}});
    const bool right =
        manager.reader().find(kBegin).has_value() && !added && added.error().code == ErrorCode::kUnsupported;
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(manager.reader().find(kBegin + 64));
}

// Whatever other threads were doing when it was forked.
TEST(CodeManager, IsRefusedToAChildThatWasForkedDuringAChange) {
  CodeManager manager = make(1 << 16);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    while (!done) (void)manager.add({{kBegin, 64, "f", 1, {}}}), (void)manager.remove({kBegin});
  });
  for (int i = 0; i < 100; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(10);
      const auto added = manager.add({{kBegin + 64, 64, "g", 1, {}}});
      ::_exit(!added && added.error().code == ErrorCode::kUnsupported ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    if (status != 0) break;
  }
  done = true;
  writer.join();
}

}  // namespace
}  // namespace windlass
