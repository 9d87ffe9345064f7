// The kernel side's look-up in code managers' tables (bpf/windlass_managed.h), as user code, compared with the C++
// reader: in random tables, in garbage, and while they change. Compiled for either machine: tables have one layout.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "runtimes/manager/read.h"
#include "support/managed_rows.h"
#include "windlass/jit/code_manager.h"
#include "windlass_user_env.h"

#include "windlass_walk.h"

namespace windlass {
namespace {

constexpr std::uint64_t kBegin = 0x7f00'0000'1000, kTable = 0x10'0000'0000;

// A table at kTable in a process's memory. Reads must lie within the size that its header gives.
class Reader final : public Memory {
 public:
  // `bytes` are 8-aligned and stay the caller's.
  explicit Reader(std::span<std::byte> bytes) : bytes_(bytes) {
    unwind_.env.context = this;
    unwind_.env.read = [](void* context, void* to, __u32 size, __u64 address) {
      return static_cast<Reader*>(context)->copy(address, to, size) ? 0 : 1;
    };
    unwind_.managed = kTable;
  }
  bool read(std::uint64_t address, void* to, std::size_t size) const override { return copy(address, to, size); }

  // As a new walk does it.
  int look_up(std::uint64_t address) {
    unwind_.table.address = 0;
    std::memset(&unwind_.room, 0xa5, sizeof unwind_.room);
    return look_up_again(address);
  }
  // As another frame of it.
  int look_up_again(std::uint64_t address) {
    reads = 0;
    const int looked = wl_find_managed_rule(&unwind_, address);
    EXPECT_LE(reads, 1 + WL_CODE_RETRIES * 40);
    return looked;
  }
  [[nodiscard]] const wl_rule& rule() const { return unwind_.rule; }
  [[nodiscard]] std::uint32_t x_reg() const { return unwind_.x_reg; }
  [[nodiscard]] std::uint64_t recycled() const { return unwind_.table.header.recycled; }

  mutable unsigned reads = 0;
  // Called in the middle of the n-th read from now on: it is half of before, half of after.
  unsigned when = ~0u;
  std::function<void()> change;

 private:
  bool copy(std::uint64_t address, void* to, std::size_t size) const {
    ++reads;
    const std::uint64_t place = address - kTable;
    std::uint64_t whole;
    std::memcpy(&whole, bytes_.data() + offsetof(wl_code_header, size), sizeof whole);
    // The header, which says how much there is, is read first.
    EXPECT_TRUE(place == 0 || (place <= whole && size <= whole - place))
        << size << " bytes at " << place << " of " << whole;
    if (place > bytes_.size() || size > bytes_.size() - place) return false;
    const std::size_t half = change && reads == when + 1 ? size / 2 : size;
    std::memcpy(to, bytes_.data() + place, half);
    if (half == size) return true;
    change();
    std::memcpy(static_cast<std::byte*>(to) + half, bytes_.data() + place + half, size - half);
    return true;
  }

  std::span<std::byte> bytes_;
  wl_unwind unwind_{};
};

// A manager's table as it is mapped, said to be of the machine that this is compiled for.
std::span<std::byte> table_of(const CodeManager& manager) {
  auto* bytes = const_cast<std::byte*>(CodeTableAccess::mapping(manager.reader()));
  const std::uint32_t machine = WL_MACHINE;
  std::memcpy(bytes + offsetof(wl_code_header, machine), &machine, sizeof machine);
  return {bytes, CodeTableAccess::table(manager.reader()).size};
}

// Rows of different CFAs, some with gaps before and behind them.
std::vector<FrameRow> random_rows(std::mt19937& random, std::uint32_t size, std::uint32_t most) {
  std::vector<FrameRow> rows;
  std::uint32_t at = random() % 3 == 0 ? random() % size : 0;
  for (std::uint32_t i = random() % (most + 1); i != 0 && at < size; --i) {
    const std::uint32_t length = 1 + random() % (1 + 2 * size / most);
    const std::uint32_t end = std::min(size, at + length);
    rows.push_back(test::managed_row(at, end, static_cast<std::int32_t>(8 * (1 + random() % 500)), random() % 2));
    at = end + (random() % 6 == 0 ? random() % 4 : 0);
  }
  return rows;
}

// Each address gives the reader's answer. How many gave a rule.
std::uint64_t compare(Reader& reader, const CodeManagerReader& peer, std::uint64_t begin, std::uint64_t end,
                      std::uint64_t step = 1) {
  std::uint64_t found = 0;
  for (std::uint64_t address = begin; address < end; address += step) {
    const auto expected = manager::rule_at(peer, address);
    const int looked = (address & 1) != 0 ? reader.look_up(address) : reader.look_up_again(address);
    const bool none = !expected && expected.error().code == ErrorCode::kNotFound;
    EXPECT_EQ(looked == WL_LOOKED_FOUND, expected.has_value()) << address - begin << ": " << looked;
    EXPECT_EQ(looked == WL_LOOKED_NONE, none) << address - begin << ": " << looked;
    if (looked != WL_LOOKED_FOUND || !expected) continue;
    ++found;
    EXPECT_EQ(std::memcmp(&reader.rule(), &expected->rule, sizeof(wl_rule)), 0) << address - begin;
    EXPECT_EQ(reader.x_reg(), expected->x_reg);
    if (::testing::Test::HasFailure()) return found;
  }
  return found;
}

// Functions of up to `largest` bytes come and go.
void compare_while_they_come_and_go(unsigned seed, std::uint32_t largest, std::uint32_t most_rows) {
  constexpr std::uint32_t kCode = 1 << 15;
  auto manager = CodeManager::create(kBegin, kBegin + kCode,
                                     {.functions = 2000, .shape_bytes = 1 << 20, .name_bytes = 1 << 12, .past = 64});
  ASSERT_TRUE(manager);
  Reader reader(table_of(*manager));
  std::mt19937 random(seed);
  std::vector<std::uint64_t> there;
  std::uint64_t found = 0;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 120; ++i) {
      const std::uint32_t size = 1 + random() % largest;
      const std::uint64_t address = kBegin + random() % (kCode - size);
      const auto rows = random_rows(random, size, most_rows);
      if (manager->add({{address, size, {}, 0, rows}})) there.push_back(address);
    }
    for (std::size_t i = there.size() / 4; i != 0; --i) {
      std::swap(there[random() % there.size()], there.back());
      ASSERT_TRUE(manager->remove({there.back()}));
      there.pop_back();
    }
    found += compare(reader, manager->reader(), kBegin - 2, kBegin + kCode + 2);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(found, 5000U);
}

TEST(ManagedLookup, IsTheReadersAmongTinyFunctions) { compare_while_they_come_and_go(1, 5, 2); }
TEST(ManagedLookup, IsTheReadersAmongSmallFunctions) { compare_while_they_come_and_go(2, 100, 6); }
TEST(ManagedLookup, IsTheReadersAmongFunctionsOfSeveralBlocks) { compare_while_they_come_and_go(3, 5000, 300); }

TEST(ManagedLookup, IsTheReadersWhereAllBlocksAreCrowded) {
  auto manager =
      CodeManager::create(kBegin, kBegin + 4096, {.functions = 4096, .shape_bytes = 1 << 16, .name_bytes = 64});
  ASSERT_TRUE(manager);
  const std::vector<FrameRow> rows = {test::managed_row(0, 1, 8)};
  std::vector<GeneratedFunction> functions;
  for (std::uint32_t i = 0; i < 4096; ++i) functions.push_back({kBegin + i, 1, {}, i, rows});
  ASSERT_TRUE(manager->add(functions));
  Reader reader(table_of(*manager));
  EXPECT_EQ(compare(reader, manager->reader(), kBegin, kBegin + 4096), 4096U);
}

// As many rows as a shape has room for.
TEST(ManagedLookup, FindsEachOf65535Rows) {
  auto manager =
      CodeManager::create(kBegin, kBegin + (1 << 20), {.functions = 1, .shape_bytes = 8u << 20, .name_bytes = 64});
  ASSERT_TRUE(manager);
  std::vector<FrameRow> rows;
  for (std::uint32_t i = 0; i < WL_CODE_MAX_ROWS; ++i)
    rows.push_back(test::managed_row(i * 4, i * 4 + 4, static_cast<std::int32_t>(8 * (i + 1))));
  ASSERT_TRUE(manager->add({{kBegin, WL_CODE_MAX_ROWS * 4, {}, 0, rows}}));
  Reader reader(table_of(*manager));
  EXPECT_EQ(compare(reader, manager->reader(), kBegin, kBegin + WL_CODE_MAX_ROWS * 4, 7), WL_CODE_MAX_ROWS * 4 / 7 + 1);
  (void)reader.look_up(kBegin + 99);
  EXPECT_LE(reader.reads, 24U);
}

// A frame costs a handful of reads: the header for the first, two of its block, its record, shape with rows,
// `recycled`.
TEST(ManagedLookup, ReadsLittle) {
  auto manager = CodeManager::create(kBegin, kBegin + 4096, {.functions = 4, .shape_bytes = 1 << 12, .name_bytes = 64});
  ASSERT_TRUE(manager);
  ASSERT_TRUE(manager->add({{kBegin + 64, 3000, {}, 0, test::managed_rows(3000, 64)}}));
  Reader reader(table_of(*manager));
  for (const std::uint64_t inside : {70u, 1000u, 3000u}) {
    ASSERT_EQ(reader.look_up(kBegin + inside), WL_LOOKED_FOUND);
    EXPECT_EQ(reader.reads, 6U);
    ASSERT_EQ(reader.look_up_again(kBegin + inside), WL_LOOKED_FOUND);
    EXPECT_EQ(reader.reads, 5U);
  }
}

// ---- garbage --------------------------------------------------------------------------------------------------------

class ManagedGarbage : public ::testing::Test {
 protected:
  void SetUp() override {
    auto manager = CodeManager::create(kBegin, kBegin + kCode,
                                       {.functions = 90, .shape_bytes = 20'000, .name_bytes = 800, .past = 4});
    ASSERT_TRUE(manager);
    std::mt19937 random(5);
    for (std::uint32_t at = 0; at + 500 < kCode; at += 64 + random() % 300) {
      const std::uint32_t size = 1 + random() % 64;
      const auto rows = random_rows(random, size, 12);
      ASSERT_TRUE(manager->add({{kBegin + at, size, "f", 0, rows}}));
    }
    // A crowded bucket, and a function of several.
    const std::vector<FrameRow> one = {test::managed_row(0, 1, 8)}, large = test::managed_rows(300, 64);
    for (std::uint32_t i = 0; i < 17; ++i) ASSERT_TRUE(manager->add({{kBegin + kCode - 350 + i, 1, {}, 0, one}}));
    ASSERT_TRUE(manager->add({{kBegin + kCode - 320, 300, {}, 0, large}}));
    const auto table = table_of(*manager);
    words.resize(table.size() / 8);
    std::memcpy(words.data(), table.data(), table.size());
  }
  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(words)); }
  // All addresses, or every n-th; both readers say the same where the C++ one takes the table.
  void look(std::uint64_t step) {
    Reader reader(bytes());
    const auto peer = CodeManagerReader::open(reader, kTable);
    std::uint32_t machine;
    std::memcpy(&machine, bytes().data() + offsetof(wl_code_header, machine), sizeof machine);
    if (peer && machine == WL_MACHINE) {
      ++taken;
      found += compare(reader, *peer, peer->begin(), std::min(peer->end(), peer->begin() + kCode), step);
      return;
    }
    for (std::uint64_t address = kBegin; address < kBegin + kCode; address += step) (void)reader.look_up(address);
  }

  static constexpr std::uint32_t kCode = 8192;
  std::vector<std::uint64_t> words;
  std::uint64_t taken = 0, found = 0;
};

TEST_F(ManagedGarbage, IsTheReadersOnEveryWrongWord) {
  auto all = bytes();
  for (std::size_t at = 0; at < all.size(); at += 4) {
    std::uint32_t kept;
    std::memcpy(&kept, &all[at], sizeof kept);
    for (const std::uint32_t wrong : {0u, 1u, kept + 1, kept - 1, kept ^ 0x8000'0000u, ~0u, 0x7fff'fffcu, 20u, 4096u}) {
      std::memcpy(&all[at], &wrong, sizeof wrong);
      look(331);
    }
    std::memcpy(&all[at], &kept, sizeof kept);
    if (HasFailure()) return;
  }
  EXPECT_GT(taken, 1000U);
  EXPECT_GT(found, 1000U);
}

TEST_F(ManagedGarbage, IsTheReadersAmongRandomWords) {
  std::mt19937_64 random(9);
  const std::vector<std::uint64_t> right = words;
  const std::size_t head = sizeof(wl_code_header) / 8;
  for (int round = 0; round < 1000; ++round) {
    words = right;
    for (std::uint64_t i = random() % 200; i != 0; --i) {
      auto& word = words[head + random() % (words.size() - head)];
      word = random() % 2 != 0 ? random() : word ^ 1ULL << random() % 64;
    }
    look(127);
    if (HasFailure()) return;
  }
  EXPECT_GT(found, 1000U);
}

// A block for each begun KiB of code, behind the one that stays empty; 4 GiB at most.
TEST(ManagedRange, HasTheBlocksForItsCode) {
  wl_code_header header{};
  header.begin = kBegin;
  for (const std::uint64_t blocks : {1u, 2u, 3u, 1000u, 1u << 22}) {
    for (const std::uint64_t size : {blocks * 1024 - 1023, blocks * 1024 - 1, blocks * 1024}) {
      header.end = header.begin + size;
      for (const std::uint64_t count : {blocks - 1, blocks, blocks + 1, blocks + 2}) {
        header.block_count = static_cast<std::uint32_t>(count);
        EXPECT_EQ(wl_code_has_range(&header) != 0, count == blocks + 1) << size << " bytes, " << count << " blocks";
      }
    }
  }
  header.block_count = 1;
  header.end = header.begin;
  EXPECT_FALSE(wl_code_has_range(&header)) << "no code";
  header.end = header.begin - 1;
  EXPECT_FALSE(wl_code_has_range(&header)) << "an end in front of its begin";
  header.end = header.begin + (1ull << 32) + 1;
  EXPECT_FALSE(wl_code_has_range(&header)) << "more than offsets reach";
}

TEST(ManagedRange, SectionsLieInTheTable) {
  wl_code_header header{};
  header.size = 64;
  for (std::uint64_t begin = 0; begin < 80; ++begin)
    for (std::uint64_t size = 0; size < 80; ++size)
      for (const std::uint64_t alignment : {1u, 4u, 8u})
        EXPECT_EQ(wl_code_has_section(&header, begin, size, alignment) != 0,
                  begin % alignment == 0 && begin + size <= 64)
            << begin << " " << size << " " << alignment;
  EXPECT_FALSE(wl_code_has_section(&header, 8, ~0ull, 8));
  EXPECT_FALSE(wl_code_has_section(&header, ~7ull, 8, 8));
}

TEST_F(ManagedGarbage, IsNoTable) {
  Reader reader(bytes());
  ASSERT_LT(reader.look_up(kBegin), WL_LOOKED_UNREADABLE);
  for (const std::size_t field :
       {offsetof(wl_code_header, magic), offsetof(wl_code_header, version), offsetof(wl_code_header, machine)}) {
    bytes()[field] ^= std::byte{1};
    EXPECT_EQ(reader.look_up(kBegin), WL_LOOKED_BAD_PLACE) << field;
    bytes()[field] ^= std::byte{1};
  }
}

// All sections are in what there is said to be, and part of the header is not: `recycled` is not read there either.
TEST_F(ManagedGarbage, IsShorterThanItsHeader) {
  wl_code_header header;
  std::memcpy(&header, words.data(), sizeof header);
  header.size = offsetof(wl_code_header, recycled);
  header.begin = kBegin;
  header.end = kBegin + 64;
  header.blocks = header.records = header.shapes = 0;
  header.block_count = wl_code_block_of(63) + 1;
  header.record_count = 1;
  header.shape_bytes = 0;
  std::memcpy(words.data(), &header, sizeof header);
  EXPECT_EQ(Reader(bytes()).look_up(kBegin), WL_LOOKED_UNREADABLE);
}

// ---- while it changes -----------------------------------------------------------------------------------------------

using Functions = std::vector<std::uint32_t>;  // one in each slot of 64 bytes, by its number; 0: none
constexpr std::uint32_t kSlots = 32, kSlot = 64;

GeneratedFunction function_of(std::uint32_t slot, std::uint32_t number, std::vector<FrameRow>& rows) {
  const std::uint32_t size = 8 + number % 50;
  rows = test::managed_rows(size, static_cast<std::int32_t>(64 + 16 * number));
  return {kBegin + slot * kSlot + number % 5, size, {}, number, rows};
}

void update(CodeManager& manager, const Functions& from, const Functions& to) {
  std::vector<std::uint64_t> gone;
  std::vector<GeneratedFunction> come;
  std::vector<FrameRow> rows[kSlots], none;
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    if (from[slot] == to[slot]) continue;
    if (from[slot] != 0) gone.push_back(function_of(slot, from[slot], none).address);
    if (to[slot] != 0) come.push_back(function_of(slot, to[slot], rows[slot]));
  }
  ASSERT_TRUE(manager.update(gone, come));
}

// In the middle of any read: the answer is that of before or that of after, also where that read has half of both.
TEST(ManagedLookup, AnswersAreOfBeforeOrAfterAChange) {
  std::mt19937 random(21);
  for (int round = 0; round < 40; ++round) {
    auto manager = CodeManager::create(kBegin, kBegin + kSlots * kSlot,
                                       {.functions = 64, .shape_bytes = 1 << 16, .name_bytes = 64, .past = 4});
    ASSERT_TRUE(manager);
    Functions before(kSlots), after(kSlots);
    for (auto& number : before) number = random() % 3 != 0 ? 1 + random() % 99 : 0;
    // Where nothing is taken away, nothing but the block itself says that it is half of both.
    const bool only_come = round % 2 != 0;
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      after[slot] = before[slot];
      if (random() % 3 == 0 && !(only_come && before[slot] != 0))
        after[slot] = random() % 3 != 0 ? 1 + random() % 99 : 0;
    }
    update(*manager, Functions(kSlots), before);
    Reader reader(table_of(*manager));
    const auto answer = [&](int looked) {
      return looked == WL_LOOKED_FOUND ? std::to_string(reader.rule().cfa_offset) : "none";
    };
    for (int i = 0; i < 20; ++i) {
      const std::uint64_t address = kBegin + random() % (kSlots * kSlot);
      const std::string old = answer(reader.look_up(address));
      for (reader.when = 0;; ++reader.when) {
        reader.change = [&] { update(*manager, before, after); };
        const std::string said = answer(reader.look_up(address));
        reader.change = nullptr;
        if (reader.reads <= reader.when) {
          EXPECT_EQ(said, old);
          break;
        }
        const std::string now = answer(reader.look_up(address));
        EXPECT_TRUE(said == old || said == now)
            << "changed in read " << reader.when << ", it is " << said << ", neither " << old << " nor " << now;
        update(*manager, after, before);
        if (HasFailure()) return;
      }
    }
  }
}

// With something taken away during each attempt a look-up ends, and says so.
TEST(ManagedLookup, EndsWhereAllChanges) {
  auto manager = CodeManager::create(kBegin, kBegin + kSlots * kSlot,
                                     {.functions = 64, .shape_bytes = 1 << 16, .name_bytes = 64, .past = 4});
  ASSERT_TRUE(manager);
  Functions with(kSlots, 1), without(kSlots, 1);
  without[3] = 0;
  update(*manager, Functions(kSlots), with);
  Reader reader(table_of(*manager));
  unsigned changes = 0;
  reader.change = [&] {
    reader.when = reader.reads + 2;
    ++changes % 2 != 0 ? update(*manager, with, without) : update(*manager, without, with);
  };
  reader.when = 1;
  EXPECT_EQ(reader.look_up(kBegin + 6), WL_LOOKED_CHANGING);
  EXPECT_GE(changes, WL_CODE_RETRIES);
}

// A walk mixes `recycled` into its stack's hash, with the value from when the function was found.
TEST(ManagedLookup, KnowsHowMuchWasTakenAway) {
  auto manager = CodeManager::create(kBegin, kBegin + kSlots * kSlot,
                                     {.functions = 64, .shape_bytes = 1 << 16, .name_bytes = 64, .past = 4});
  ASSERT_TRUE(manager);
  Functions one(kSlots), other(kSlots);
  one[0] = 10, other[0] = 15;  // at the same address
  Reader reader(table_of(*manager));
  update(*manager, Functions(kSlots), one);
  ASSERT_EQ(reader.look_up(kBegin + 6), WL_LOOKED_FOUND);
  const std::uint64_t first = reader.recycled();
  ASSERT_EQ(reader.look_up_again(kBegin + 6), WL_LOOKED_FOUND);
  EXPECT_EQ(reader.recycled(), first);
  update(*manager, one, other);
  ASSERT_EQ(reader.look_up_again(kBegin + 6), WL_LOOKED_FOUND);
  EXPECT_NE(reader.recycled(), first);
  EXPECT_EQ(reader.rule().cfa_offset, 64 + 16 * 15);
}

}  // namespace
}  // namespace windlass
