// The registry of code ranges: what is found, what is refused, and whose rows are used.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "support/cfi_builder.h"
#include "support/jit_stub.h"
#include "walk/code_ranges.h"
#include "walk/inside.h"
#include "walk/module.h"
#include "windlass/backtrace.h"
#include "windlass/jit/code_manager.h"

namespace windlass {
namespace {

using test::JitStub;
using walk::CodeRanges;

class NoMemory final : public Memory {
 public:
  bool read(std::uint64_t, void*, std::size_t) const override { return false; }
};

CodeRange range(std::uint64_t begin, std::uint64_t end) { return {.begin = begin, .end = end}; }

const walk::Module* find(const CodeRanges& ranges, std::uint64_t address) {
  return CodeRanges::View(ranges).find(address);
}

TEST(CodeRanges, AreFoundUntilRetired) {
  CodeRanges ranges;
  EXPECT_EQ(find(ranges, 0x1000), nullptr);
  const auto id = ranges.add({.begin = 0x1000, .end = 0x2000, .name = "[a]"}, kOwnArchitecture);
  ASSERT_TRUE(id);
  for (const std::uint64_t inside : {0x1000u, 0x1fffu}) {
    const walk::Module* found = find(ranges, inside);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->info().path, "[a]");
    EXPECT_TRUE(found->generated());
  }
  EXPECT_EQ(find(ranges, 0xfff), nullptr);
  EXPECT_EQ(find(ranges, 0x2000), nullptr);
  EXPECT_EQ(ranges.at(0x1000), *id);
  EXPECT_EQ(ranges.at(0x1001), CodeRangeId::kNone);
  EXPECT_TRUE(ranges.retire(*id));
  EXPECT_EQ(find(ranges, 0x1000), nullptr);
  // Ids are not given twice.
  const auto again = ranges.add(range(0x1000, 0x2000), kOwnArchitecture);
  ASSERT_TRUE(again);
  EXPECT_NE(*again, *id);
  const auto retired = ranges.retire(*id);
  ASSERT_FALSE(retired);
  EXPECT_EQ(retired.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(retired.error().where, static_cast<std::uint64_t>(*id));
}

TEST(CodeRanges, RefusesWhatIsEmptyOrOverlaps) {
  CodeRanges ranges;
  const auto where_refused = [&](std::uint64_t begin, std::uint64_t end) -> std::uint64_t {
    const auto added = ranges.add(range(begin, end), kOwnArchitecture);
    if (added) return ranges.retire(*added) ? 0 : 1;
    EXPECT_EQ(added.error().code, ErrorCode::kMalformed);
    return added.error().where;
  };
  ASSERT_TRUE(ranges.add(range(0x2000, 0x3000), kOwnArchitecture));
  ASSERT_TRUE(ranges.add(range(0x5000, 0x5010), kOwnArchitecture));
  EXPECT_EQ(where_refused(0x900, 0x900), 0x900u);
  EXPECT_EQ(ranges.add(range(0x900, 0x900), kOwnArchitecture).error().what, std::string_view("code range is empty"));
  EXPECT_EQ(where_refused(0x900, 0x800), 0x900u);
  EXPECT_EQ(where_refused(0x2000, 0x3000), 0x2000u);
  EXPECT_EQ(where_refused(0x1000, 0x2001), 0x2000u);
  EXPECT_EQ(where_refused(0x2fff, 0x4000), 0x2000u);
  EXPECT_EQ(where_refused(0x2100, 0x2200), 0x2000u);
  EXPECT_EQ(where_refused(0x4000, 0x6000), 0x5000u);
  EXPECT_EQ(where_refused(0x1000, 0x9000), 0x5000u);
  EXPECT_EQ(where_refused(0x1000, 0x2000), 0u);
  EXPECT_EQ(where_refused(0x3000, 0x5000), 0u);
}

// Thousands of ranges, so that blocks are made, split and given up: as a map has them.
TEST(CodeRanges, FindWhatAMapFinds) {
  CodeRanges ranges;
  std::map<std::uint64_t, std::pair<std::uint64_t, CodeRangeId>> known;
  std::mt19937_64 random(7);
  const auto expected = [&](std::uint64_t address) {
    auto behind = known.upper_bound(address);
    return behind != known.begin() && address < (--behind)->second.first ? behind->first : 0;
  };
  const auto check = [&](std::uint64_t address) {
    const walk::Module* found = find(ranges, address);
    ASSERT_EQ(found != nullptr ? found->info().begin : 0, expected(address)) << address;
  };
  for (int i = 0; i < 12'000; ++i) {
    const std::uint64_t begin = 1 + random() % 40'000 * 16;
    const std::uint64_t end = begin + 1 + random() % 16;
    const bool grows = i < 6'000 ? random() % 4 != 0 : random() % 4 == 0;
    if (grows || known.empty()) {
      const bool free = expected(begin) == 0 && expected(end - 1) == 0;
      const auto id = ranges.add(range(begin, end), kOwnArchitecture);
      ASSERT_EQ(id.has_value(), free);
      if (id) known[begin] = {end, *id};
    } else {
      auto gone = known.lower_bound(begin);
      if (gone == known.end()) gone = known.begin();
      ASSERT_TRUE(ranges.retire(gone->second.second));
      const std::uint64_t freed = gone->first;
      known.erase(gone);
      check(freed);
    }
    for (const std::uint64_t address : {begin - 1, begin, end - 1, end, random() % 700'000}) check(address);
  }
  for (const auto& [begin, rest] : known) ASSERT_TRUE(ranges.retire(rest.second));
  EXPECT_TRUE(CodeRanges::View(ranges).empty());
  EXPECT_EQ(walk::code_grace_period().waiting(), 0u);
}

TEST(CodeRanges, StayForAWalkerThatHasThem) {
  AddressSpace space(kOwnArchitecture, std::make_unique<NoMemory>());
  const auto id =
      space.add({.begin = 0x1000, .end = 0x2000, .name = "a name too long to be kept in the string itself"});
  ASSERT_TRUE(id);
  Registers registers(kOwnArchitecture);
  registers.set_pc(CodeAddress::instruction(0x1800));
  registers.set_sp(0x7000);
  {
    StackWalker walker(space, registers);
    EXPECT_TRUE(space.retire(*id));
    ASSERT_TRUE(space.add({.begin = 0x1000, .end = 0x3000, .name = "[b]"}));
    EXPECT_EQ(walker.frame().module->path, "a name too long to be kept in the string itself");
    EXPECT_NE(walk::code_grace_period().waiting(), 0u);
    walker.restart(registers);
    EXPECT_EQ(walker.frame().module->path, "[b]");
  }
  ASSERT_TRUE(space.remove(0x1000));
  EXPECT_EQ(walk::code_grace_period().waiting(), 0u);
  EXPECT_EQ(space.module_at(0x1800), nullptr);
  EXPECT_EQ(space.remove(0x1000).error().code, ErrorCode::kNotFound);
}

TEST(CodeRanges, AndModulesAreDisjoint) {
  AddressSpace space(kOwnArchitecture, std::make_unique<NoMemory>());
  ASSERT_TRUE(space.add(range(0x1000, 0x2000)));
  ASSERT_TRUE(space.add_module({0x3000, 0x4000, 0, "/nowhere", {}}));
  EXPECT_EQ(space.add(range(0x2000, 0x3001)).error().where, 0x3000u);
  EXPECT_EQ(space.add_module({0x1fff, 0x3000, 0, "/nowhere", {}}).error().where, 0x1000u);
  ASSERT_EQ(space.modules().size(), 2u);
  EXPECT_EQ(space.modules()[0]->begin, 0x1000u);
}

TEST(CodeRanges, OfTheOwnProcessAreNotLoadedCode) {
  const auto here = reinterpret_cast<std::uint64_t>(&find);
  const auto added = add_own_code(range(here, here + 1));
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, ErrorCode::kMalformed);
  EXPECT_EQ(added.error().where, here);
}

// ---- rows ---------------------------------------------------------------------------------------------------------

FrameRow row(std::uint64_t begin, std::uint64_t end) {
  FrameRow row;
  row.begin = begin;
  row.end = end;
  row.cfa = CfaRule::at(7, 8);
  row.return_address = RegisterRule::at_cfa(-8);
  return row;
}

// Code that comes and goes, whose rows are counted as they are asked for.
class ChangingSource final : public sources::UnwindSource {
 public:
  explicit ChangingSource(std::atomic<unsigned>& asked, std::atomic<std::uint64_t>& taken)
      : asked_(asked), taken_(taken) {}
  std::optional<Architecture> architecture() const override { return kOwnArchitecture; }
  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override {
    ++asked_;
    to = FrameRow{};
    to.begin = address;
    to.end = address + 1;
    to.cfa = CfaRule::at(Registers::sp_number(kOwnArchitecture), 32);
    to.return_address = RegisterRule::at_cfa(-8);
    return {};
  }
  Expected<sources::Function> function_at(std::uint64_t address) const override {
    return fail(ErrorCode::kNotFound, "none", address);
  }
  void for_each_function(sources::FunctionSink, sources::ErrorSink) const override {}
  void for_each_row(const sources::Function&, sources::RowSink, sources::ErrorSink) const override {}
  void for_each_row(sources::RowVisitor&, sources::ErrorSink) const override {}
  std::optional<std::uint64_t> taken_away() const override { return taken_; }

 private:
  std::atomic<unsigned>& asked_;
  std::atomic<std::uint64_t>& taken_;
};

TEST(CodeRanges, ThatChangeAreAskedAgainWhenSomethingWasTakenAway) {
  std::atomic<unsigned> asked = 0;
  std::atomic<std::uint64_t> taken = 0;
  static std::byte code[64];
  const auto begin = reinterpret_cast<std::uint64_t>(code);
  const auto id = walk::own_code_ranges().add_changing(
      {.begin = begin, .end = begin + sizeof code, .bias = 0, .path = "[made up]", .file = {}},
      std::make_unique<ChangingSource>(asked, taken));
  ASSERT_TRUE(id) << id.error().text();
  std::uint64_t stack[16] = {};
  stack[3] = begin + 32;
  stack[7] = begin + 40;
  Registers registers(kOwnArchitecture);
  registers.set_pc(CodeAddress::return_address(begin + 24));
  registers.set_sp(reinterpret_cast<std::uint64_t>(stack));
  const auto two_steps = [&] {
    StackWalker walker(own_process(), registers);
    const unsigned before = asked;
    EXPECT_TRUE(walker.step());
    EXPECT_EQ(walker.frame().pc().value(), begin + 32);
    EXPECT_TRUE(walker.step());
    EXPECT_EQ(walker.frame().pc().value(), begin + 40);
    return asked - before;
  };
  EXPECT_EQ(two_steps(), 2u);
  EXPECT_EQ(two_steps(), 0u);
  ++taken;
  EXPECT_EQ(two_steps(), 2u);
  EXPECT_EQ(two_steps(), 0u);
  taken = std::uint64_t{1} << 40;  // more than is told apart: nothing is kept
  EXPECT_EQ(two_steps(), 2u);
  EXPECT_EQ(two_steps(), 2u);
  EXPECT_TRUE(walk::own_code_ranges().retire(*id));
}

class NoNames final : public sources::NameSource {
 public:
  std::uint64_t functions_at(std::uint64_t, std::uint64_t, std::uint64_t,
                             std::vector<sources::NamedFunction>&) override {
    return 0;
  }
};

TEST(CodeRanges, ARetiredOneIsFreedOnceNobodyCanHaveFoundIt) {
  CodeRanges ranges;
  std::atomic<unsigned> asked = 0;
  std::atomic<std::uint64_t> taken = 0;
  auto names = std::make_shared<NoNames>();
  const std::weak_ptr<NoNames> alive = names;
  const auto id = ranges.add_changing({.begin = 0x1000, .end = 0x2000, .bias = 0, .path = "[made up]", .file = {}},
                                      std::make_unique<ChangingSource>(asked, taken), std::move(names));
  ASSERT_TRUE(id) << id.error().text();
  {
    const CodeRanges::View view(ranges);
    ASSERT_TRUE(ranges.retire(*id));
    EXPECT_NE(view.find(0x1000), nullptr);
    EXPECT_FALSE(alive.expired());
  }
  ASSERT_TRUE(ranges.add(range(0x3000, 0x4000), kOwnArchitecture));  // a change frees what waits
  EXPECT_TRUE(alive.expired());
}

TEST(CodeRangeRows, MustBeSortedAndInTheRange) {
  CodeRanges ranges;
  const auto where_refused = [&](std::vector<FrameRow> rows) -> std::uint64_t {
    const auto added = ranges.add({.begin = 0x1000, .end = 0x2000, .rows = std::move(rows)}, kOwnArchitecture);
    if (added) return ranges.retire(*added) ? 0 : 1;
    return added.error().where;
  };
  EXPECT_EQ(where_refused({row(0x1000, 0x1100), row(0x1100, 0x2000)}), 0u);
  EXPECT_EQ(where_refused({row(0x1200, 0x1300)}), 0u);
  EXPECT_EQ(where_refused({row(0x1000, 0x1100), row(0x10ff, 0x1200)}), 0x10ffu);
  EXPECT_EQ(where_refused({row(0x1100, 0x1200), row(0x1000, 0x1100)}), 0x1000u);
  EXPECT_EQ(where_refused({row(0x1100, 0x1100)}), 0x1100u);
  EXPECT_EQ(where_refused({row(0xfff, 0x1100)}), 0xfffu);
  EXPECT_EQ(where_refused({row(0x1000, 0x2001)}), 0x1000u);
}

Expected<FrameRow> row_at(const walk::Module& module, std::uint64_t address) {
  FrameRow found;
  if (const auto done = module.row_at(address, found); !done) return Failure(done.error());
  return found;
}

TEST(CodeRangeRows, AreCopiedWithTheirExpressions) {
  CodeRanges ranges;
  std::vector<std::byte> expressions(5, std::byte{0x77});
  std::vector<std::byte> others(2, std::byte{0x50});
  FrameRow with = row(0x1000, 0x1100);
  with.expressions = ByteView(expressions.data(), expressions.size());
  with.cfa = CfaRule::expression({1, 3});
  FrameRow next = with;
  next.begin = with.end;
  next.end = 0x1180;
  FrameRow other = row(0x1180, 0x1200);
  other.expressions = ByteView(others.data(), others.size());
  ASSERT_TRUE(other.registers.set(3, RegisterRule::at_expression({0, 2})));
  FrameRow last = other;
  last.begin = other.end;
  last.end = 0x1280;
  ASSERT_TRUE(
      ranges.add({.begin = 0x1000, .end = 0x2000, .bias = 0x400, .rows = {with, next, other, last}}, kOwnArchitecture));
  std::ranges::fill(expressions, std::byte{0});
  std::ranges::fill(others, std::byte{0});
  const walk::Module* module = find(ranges, 0x1000);
  for (const std::uint64_t address : {0x1010u, 0x1110u}) {
    const auto found = row_at(*module, address);
    ASSERT_TRUE(found);
    const ByteView cfa = found->expression(found->cfa);
    ASSERT_EQ(cfa.size(), 3u);
    EXPECT_EQ(cfa.u8()[2], 0x77);
  }
  for (const std::uint64_t address : {0x1190u, 0x1210u}) {
    const auto found = row_at(*module, address);
    ASSERT_TRUE(found);
    const ByteView saved = found->expression(*found->registers.find(3));
    ASSERT_EQ(saved.size(), 2u);
    EXPECT_EQ(saved.u8()[1], 0x50);
  }
  EXPECT_EQ(row_at(*module, 0x11ff)->begin, 0x1180u);
  EXPECT_EQ(row_at(*module, 0x1280).error().code, ErrorCode::kNotFound);
}

TEST(CodeRangeRows, ComeFromEhFrame) {
  CodeRanges ranges;
  test::CfiBuilder cfi;
  const std::uint64_t cie = cfi.cie();
  cfi.fde(cie, 0x1800, 0x10, {0x41, 0x0e, 16});  // advance 1; def_cfa_offset 16
  cfi.fde(cie, 0x1000, 0x10, {});
  const auto add = [&](test::CfiBuilder& from, std::uint64_t end) {
    const ByteView bytes = from.raw().view();
    return ranges.add({.begin = 0x1000, .end = end, .eh_frame = {bytes.data(), bytes.data() + bytes.size()}},
                      Architecture::kX86_64);
  };
  const auto id = add(cfi, 0x2000);
  ASSERT_TRUE(id) << id.error().text();
  const walk::Module* module = find(ranges, 0x1000);
  EXPECT_EQ(row_at(*module, 0x100f)->cfa.offset(), 8);
  EXPECT_FALSE(row_at(*module, 0x1010));
  EXPECT_EQ(row_at(*module, 0x1800)->cfa.offset(), 8);
  EXPECT_EQ(row_at(*module, 0x1801)->cfa.offset(), 16);
  ASSERT_TRUE(ranges.retire(*id));

  EXPECT_EQ(add(cfi, 0x1800).error().code, ErrorCode::kOutOfRange);
  cfi.raw().data().resize(cfi.raw().size() - 3);
  EXPECT_EQ(add(cfi, 0x2000).error().code, ErrorCode::kTruncated);
  test::CfiBuilder empty;
  empty.cie();
  EXPECT_EQ(add(empty, 0x2000).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(CodeRanges::View(ranges).empty());
}

// ---- the own process ----------------------------------------------------------------------------------------------

struct Walks {
  std::vector<std::uint64_t> fast, exact;
  FrameOrigin left_stub_by = FrameOrigin::kContext;
};

// Called by the stub: what is above it.
[[gnu::noinline]] void walk_here(void* to) {
  Walks& walks = *static_cast<Walks*>(to);
  walks.fast.resize(512);
  walks.fast.resize(backtrace(walks.fast.data(), walks.fast.size(), 1));
  walks.exact.clear();
  StackWalker walker(own_process(), capture_registers());
  while (walker.step()) {
    if (walks.exact.size() == 1) walks.left_stub_by = walker.frame().origin;
    walks.exact.push_back(walker.frame().pc().value());
  }
  EXPECT_TRUE(walks.exact.size() < 2 || walker.end_reason() == WalkEnd::kComplete) << walker.error().text();
}

[[gnu::noinline]] std::uint64_t some_return_address() {
  return reinterpret_cast<std::uint64_t>(__builtin_return_address(0));
}

class OwnCode : public ::testing::Test {
 protected:
  void SetUp() override {
    room_ = JitStub::make_room(4096);
    if (room_ == nullptr) GTEST_SKIP() << "no memory that is writable and executable is given out here";
  }
  void TearDown() override { ::munmap(room_, 4096); }

  [[gnu::noinline]] Walks through(const JitStub& stub) {
    Walks walks;
    decoy_ = some_return_address();
    stub.call(walk_here, decoy_, &walks);
    // The return address in here is between the stub's and the caller's.
    caller_ = reinterpret_cast<std::uint64_t>(__builtin_extract_return_addr(__builtin_return_address(0)));
    return walks;
  }
  // Both walks go through the stub to the test and on.
  void expect_right(const JitStub& stub, const Walks& walks) {
    EXPECT_EQ(walks.fast, walks.exact);
    ASSERT_GT(walks.exact.size(), 5u);
    EXPECT_EQ(walks.exact[0], stub.return_address());
    EXPECT_EQ(walks.exact[2], caller_);
  }

  std::byte* room_ = nullptr;
  std::uint64_t caller_ = 0;
  std::uint64_t decoy_ = 0;
};

TEST_F(OwnCode, IsWalkedByItsRows) {
  const JitStub stub(room_, JitStub::words(8));
  const auto id = add_own_code(stub.range());
  ASSERT_TRUE(id) << id.error().text();
  for (int i = 0; i < 3; ++i) {
    const Walks walks = through(stub);
    expect_right(stub, walks);
    EXPECT_EQ(walks.left_stub_by, FrameOrigin::kCfi);
  }
  EXPECT_TRUE(retire_own_code(*id));
  EXPECT_EQ(own_process().module_at(stub.begin()), nullptr);
  // Nobody's code any more: another way out leads the same way.
  const Walks walks = through(stub);
  expect_right(stub, walks);
  EXPECT_EQ(walks.left_stub_by, FrameOrigin::kSynthesis);
}

TEST_F(OwnCode, IsWalkedByItsInstructionsWithoutRows) {
  const JitStub stub(room_, JitStub::words(8));
  const auto id = add_own_code({.begin = stub.begin(), .end = stub.end()});
  ASSERT_TRUE(id);
  const Walks walks = through(stub);
  expect_right(stub, walks);
  EXPECT_NE(walks.left_stub_by, FrameOrigin::kCfi);
  EXPECT_TRUE(retire_own_code(*id));
}

#if defined(__x86_64__)
// A walk in a signal handler says so if it has no time for a result. Once another walk has found the result, it is
// known.
TEST_F(OwnCode, WithoutRowsMayTakeMoreThanAWalkCanSpend) {
  constexpr unsigned kInstructions = 400;
  auto* code = reinterpret_cast<std::uint8_t*>(room_);
  for (unsigned i = 0; i < kInstructions; ++i) code[2 * i] = 0x31, code[2 * i + 1] = 0xc9;  // xor ecx, ecx
  const std::uint8_t end[] = {0x48, 0x83, 0xc4, 0x08, 0xc3};                                // add rsp, 8; ret
  std::copy(std::begin(end), std::end(end), code + 2 * kInstructions);
  const auto begin = reinterpret_cast<std::uint64_t>(room_);
  const auto id = add_own_code({.begin = begin, .end = begin + 2 * kInstructions + sizeof end});
  ASSERT_TRUE(id);
  std::uint64_t stack[8] = {0, some_return_address()};
  Registers registers(kOwnArchitecture);
  registers.set_pc(CodeAddress::return_address(begin + 2));
  registers.set_sp(reinterpret_cast<std::uint64_t>(stack));
  registers.set(6, 1);  // no frame pointer
  constexpr std::uint32_t kBudget = 256;
  const auto step = [&](std::uint32_t most, std::uint32_t& left) {
    StackWalker walker(own_process(), registers, {.max_followed = most});
    const bool stepped = walker.step();
    left = walker.may_follow();
    EXPECT_EQ(walker.end_reason(), stepped ? WalkEnd::kRunning : WalkEnd::kBudget) << walker.error().text();
    EXPECT_EQ(walker.frame().sp(), reinterpret_cast<std::uint64_t>(stepped ? stack + 2 : stack));
    return stepped;
  };
  std::uint32_t left = 0, most = 0;
  EXPECT_FALSE(step(kBudget, left));
  EXPECT_EQ(left, 0u);
  for (int i = 0; i < 2; ++i, most = std::max(most, left)) EXPECT_FALSE(step(kBudget, left));
  EXPECT_GT(most, kBudget / 2) << "that it is too long is known";
  EXPECT_TRUE(step(~std::uint32_t{0}, left));
  EXPECT_TRUE(step(kBudget, left));
  EXPECT_GT(left, kBudget / 2);
  EXPECT_TRUE(retire_own_code(*id));
}
#endif

// The same addresses, call sites included, with another frame: never by what was known before.
TEST_F(OwnCode, IsNeverWalkedByTheRowsOfWhatWasThere) {
  for (int i = 0; i < 200; ++i) {
    // So that the call stands at the same address, the pushes begin where they must.
    const unsigned words = JitStub::words(1 + static_cast<unsigned>(i * 7 % 40));
    const std::size_t shift = kOwnArchitecture == Architecture::kX86_64 ? 64 - words : 4 * (32 - words / 2);
    const JitStub stub(room_ + shift, words);
    const auto id = add_own_code(stub.range());
    ASSERT_TRUE(id) << id.error().text();
    expect_right(stub, through(stub));
    ASSERT_TRUE(retire_own_code(*id));
  }
}

// The same by a manager, whose functions change while it is known as one range.
TEST_F(OwnCode, IsWalkedByItsManager) {
  const auto begin = reinterpret_cast<std::uint64_t>(room_);
  auto manager = CodeManager::create(begin, begin + 4096);
  ASSERT_TRUE(manager) << manager.error().text();
  const auto id = add_own_code(*manager);
  ASSERT_TRUE(id) << id.error().text();
  for (int i = 0; i < 200; ++i) {
    const unsigned words = JitStub::words(1 + static_cast<unsigned>(i * 7 % 40));
    const std::size_t shift = kOwnArchitecture == Architecture::kX86_64 ? 64 - words : 4 * (32 - words / 2);
    const JitStub stub(room_ + shift, words);
    const std::vector<FrameRow> rows = stub.rows_inside();
    ASSERT_TRUE(manager->add({{stub.begin(), stub.end() - stub.begin(), "stub", 0, rows}}));
    const Walks walks = through(stub);
    expect_right(stub, walks);
    EXPECT_EQ(walks.left_stub_by, FrameOrigin::kCfi);
    ASSERT_TRUE(manager->remove({stub.begin()}));
  }
  // Code of which the manager does not know: by its instructions.
  const JitStub stub(room_, JitStub::words(8));
  const Walks walks = through(stub);
  expect_right(stub, walks);
  EXPECT_EQ(walks.left_stub_by, FrameOrigin::kSynthesis);
  const walk::Module* module = walk::module_at(own_process(), stub.begin());
  ASSERT_NE(module, nullptr);
  EXPECT_TRUE(module->generated());
  // It is one range among others: with the same rules, and gone when it is retired.
  EXPECT_EQ(add_own_code(*manager).error().where, begin);
  EXPECT_EQ(add_own_code(stub.range()).error().where, begin);
  EXPECT_TRUE(retire_own_code(*id));
  EXPECT_EQ(own_process().module_at(stub.begin()), nullptr);
  const auto range_id = add_own_code(stub.range());
  ASSERT_TRUE(range_id);
  EXPECT_TRUE(retire_own_code(*range_id));
}

// Walks that know of it go on when the manager is destroyed.
TEST_F(OwnCode, OutlivesItsManager) {
  const JitStub stub(room_, JitStub::words(8));
  const std::vector<FrameRow> rows = stub.rows_inside();
  CodeRangeId id = CodeRangeId::kNone;
  {
    auto manager = CodeManager::create(stub.begin(), stub.begin() + 4096);
    ASSERT_TRUE(manager);
    ASSERT_TRUE(manager->add({{stub.begin(), stub.end() - stub.begin(), "stub", 0, rows}}));
    const auto added = add_own_code(*manager);
    ASSERT_TRUE(added);
    id = *added;
  }
  const Walks walks = through(stub);
  expect_right(stub, walks);
  EXPECT_EQ(walks.left_stub_by, FrameOrigin::kCfi);
  EXPECT_TRUE(retire_own_code(id));
}

// Wrong rows lead a walk astray, to the decoy that the stub has pushed: it is the rows that are followed.
TEST_F(OwnCode, WrongRowsAreNoticedByThisTest) {
  const JitStub stub(room_, JitStub::words(16));
  CodeRange range = stub.range();
  for (FrameRow& row : range.rows) {
    if (kOwnArchitecture == Architecture::kX86_64)
      row.cfa = CfaRule::at(x86_64::kRsp, row.cfa.offset() / 2 / 8 * 8);
    else if (row.return_address.is(RegisterRule::kAtCfa))  // on top of the stack, the decoy next to it
      row.return_address = RegisterRule::at_cfa(row.return_address.offset() + 8);
  }
  const auto id = add_own_code(std::move(range));
  ASSERT_TRUE(id) << id.error().text();
  const Walks walks = through(stub);
  ASSERT_GE(walks.fast.size(), 2u);
  EXPECT_EQ(walks.fast[0], stub.return_address());
  EXPECT_EQ(walks.fast[1], decoy_);
  EXPECT_TRUE(retire_own_code(*id));
}

}  // namespace
}  // namespace windlass
