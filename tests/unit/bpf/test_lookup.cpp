// From a pc to its rule, in the bytes that also go into the kernel.
#include <gtest/gtest.h>
#include <unistd.h>

#include <random>

#include "base/mapped_file.h"
#include "fake_target.h"
#include "formats/image/elf.h"
#include "lookup/table/compile.h"
#include "os/mapped_files.h"

namespace windlass {
namespace {

using testing::FakeTarget;

const wl_rule& rule_at(const FakeTarget& target, const wl_module& module, std::uint64_t address) {
  static const wl_rule none{};
  wl_covered covered;
  const std::uint32_t ref = wl_find_rule_ref(&target.env, &module, address, &covered);
  return ref == 0 ? none : *reinterpret_cast<const wl_rule*>(target.arena->at(ref));
}

// Where one row is said to cover a whole piece of code, it does.
void expect_one_rule(const FakeTarget& target, const wl_module& module, std::uint64_t address, std::size_t& pieces) {
  wl_covered covered;
  const std::uint32_t ref = wl_find_rule_ref(&target.env, &module, address, &covered);
  if (covered.piece == 0) return;
  ++pieces;
  const std::uint64_t begin = address & ~std::uint64_t{WL_PIECE - 1};
  for (std::uint64_t other = begin; other < begin + WL_PIECE; ++other)
    ASSERT_EQ(wl_find_rule_ref(&target.env, &module, other, &covered), ref) << std::hex << other;
}

// The table itself is compared with readelf elsewhere; here the search is compared with the table.
void expect_agreement(const char* path) {
  auto file = MappedFile::open(path);
  if (!file) GTEST_SKIP() << path << " is not here";
  auto image = image::ElfImage::parse(file->bytes());
  ASSERT_TRUE(image.has_value());
  auto ignore = [](const Error&) {};
  auto table = table::compile_elf(*image, ignore);
  ASSERT_TRUE(table.has_value());
  FakeTarget target;
  auto placed = table::load_table(*table, *target.arena);
  ASSERT_TRUE(placed.has_value());
  std::mt19937_64 random(7);
  std::size_t checked = 0, pieces = 0;
  for (const image::ExecutableSegment& segment : image->executable_segments()) {
    const std::uint64_t begin = segment.vaddr < 4096 ? 0 : segment.vaddr - 4096;
    for (std::uint64_t address = begin; address < segment.vaddr + segment.memsz + 4096; address += random() % 24) {
      const wl_rule& expected = table->find(address);
      const wl_rule& found = rule_at(target, placed->module, address);
      ASSERT_EQ(std::memcmp(&expected, &found, sizeof found), 0) << path << " at " << std::hex << address;
      ASSERT_NO_FATAL_FAILURE(expect_one_rule(target, placed->module, address, pieces));
      ++checked;
    }
  }
  EXPECT_GT(checked, 100U);
  EXPECT_GT(pieces, checked / 4);
  EXPECT_EQ(&rule_at(target, placed->module, 0xffff'ffff'ffff'ffff), &rule_at(target, wl_module{}, 0));
}

TEST(Lookup, AgreesWithTheTableOnItself) { expect_agreement("/proc/self/exe"); }
TEST(Lookup, AgreesWithTheTableOnLibc) { expect_agreement("/lib/x86_64-linux-gnu/libc.so.6"); }
TEST(Lookup, AgreesWithTheTableOnLibstdcxx) { expect_agreement("/usr/lib/x86_64-linux-gnu/libstdc++.so.6"); }

// A gap counts as code generated ahead of time if it fills a page of 64 KiB, and then up to its ends. (V8's builtins
// begin with the way from C++ into JavaScript, a few bytes behind the last C++ function.)
TEST(Lookup, BareCodeReachesToTheNextRow) {
  table::TableBuilder builder;
  wl_rule rule{};
  rule.cfa_kind = WL_CFA_REG;
  rule.cfa_offset = 8;
  for (const std::uint64_t begin : {0x10000, 0x1d000, 0x3a000, 0x3e000, 0x4e000}) {
    builder.begin_function(begin, begin + 0x100);
    builder.row(begin, rule);
    builder.end_function();
  }
  const auto table = builder.finish();
  ASSERT_TRUE(table.has_value());
  FakeTarget target;
  const auto placed = table::load_table(*table, *target.arena);
  ASSERT_TRUE(placed.has_value());
  const auto is_bare = [&](std::uint64_t address) {
    wl_covered covered;
    const std::uint32_t ref = wl_find_rule_ref(&target.env, &placed->module, address, &covered);
    EXPECT_FALSE(ref != 0 && covered.bare != 0) << std::hex << address;
    return covered.bare != 0;
  };
  for (const std::uint64_t bare : {0x1d100, 0x1ffff, 0x20000, 0x2ffff, 0x30000, 0x39fff})
    EXPECT_TRUE(is_bare(bare)) << bare;
  for (const std::uint64_t not_bare : {0x10000, 0x10100, 0x1cfff, 0x1d0ff, 0x3a000, 0x3a100, 0x3dfff, 0x3e0ff})
    EXPECT_FALSE(is_bare(not_bare)) << std::hex << not_bare;
  // Too little, though it is in two pages.
  for (const std::uint64_t small : {0x3e100, 0x3ffff, 0x40000, 0x4dfff})
    EXPECT_FALSE(is_bare(small)) << std::hex << small;
}

// The most escapes a page can hold: 65,536 rows, none of whose rules is among the 255 used most.
TEST(Lookup, PageFullOfEscapes) {
  constexpr int kCommon = 300;
  table::TableBuilder builder;
  const auto rule = [](int offset) {
    wl_rule made{};
    made.cfa_kind = WL_CFA_REG;
    made.cfa_offset = offset;
    return made;
  };
  builder.begin_function(0x100000, 0x100000 + 3 * kCommon);
  for (int i = 0; i < 3 * kCommon; ++i)
    builder.row(0x100000 + static_cast<std::uint64_t>(i), rule(1'000'000 + i % kCommon));
  builder.end_function();
  builder.begin_function(0x10000, 0x20000);
  for (int i = 0; i < 65536; ++i) builder.row(0x10000 + static_cast<std::uint64_t>(i), rule(i + 1));
  builder.end_function();
  const auto table = builder.finish();
  ASSERT_TRUE(table.has_value());
  FakeTarget target;
  const auto placed = table::load_table(*table, *target.arena);
  ASSERT_TRUE(placed.has_value());
  for (int i = 0; i < 65536; ++i) {
    const auto address = 0x10000 + static_cast<std::uint64_t>(i);
    ASSERT_EQ(table->find(address).cfa_offset, i + 1);
    ASSERT_EQ(rule_at(target, placed->module, address).cfa_offset, i + 1);
  }
}

TEST(Lookup, MappingsOfEverySize) {
  std::mt19937_64 random(11);
  for (const std::size_t size : {0U, 1U, 2U, 3U, 7U, 8U, 64U, 1000U, 20000U}) {
    FakeTarget target;
    std::vector<wl_mapping> mappings;
    std::uint64_t at = 0x1000;
    for (std::size_t i = 0; i < size; ++i) {
      const std::uint64_t begin = at + (random() % 3) * 0x1000, end = begin + (1 + random() % 3) * 0x1000;
      mappings.push_back({begin, end, 0, static_cast<std::uint32_t>(i), 0});
      at = end;
    }
    target.set_mappings(mappings);
    for (std::uint64_t pc = 0; pc < at + 0x3000; pc += 0x800) {
      const wl_mapping* found = wl_find_mapping(&target.env, target.maps, target.count, pc);
      const auto expected = std::find_if(mappings.begin(), mappings.end(),
                                         [&](const wl_mapping& m) { return m.begin <= pc && pc < m.end; });
      if (expected == mappings.end()) {
        ASSERT_EQ(found, nullptr) << size << ' ' << pc;
      } else {
        ASSERT_NE(found, nullptr) << size << ' ' << pc;
        ASSERT_EQ(found->module, expected->module);
      }
      if (size > 1000) pc += 0x7000;
    }
    EXPECT_EQ(wl_find_mapping(&target.env, target.maps, target.count, ~0ULL), nullptr);
  }
}

TEST(Lookup, OverlapOfARange) {
  FakeTarget target;
  target.set_mappings({{0x2000, 0x3000, 0, 0, 0}, {0x5000, 0x6000, 0, 1, 0}});
  auto overlaps = [&](std::uint64_t address, std::uint64_t length) {
    return wl_overlaps(&target.env, target.maps, target.count, address, length) != 0;
  };
  EXPECT_FALSE(overlaps(0x1000, 0x1000));
  EXPECT_TRUE(overlaps(0x1000, 0x1001));
  EXPECT_TRUE(overlaps(0x2fff, 1));
  EXPECT_FALSE(overlaps(0x3000, 0x2000));
  EXPECT_TRUE(overlaps(0x1000, 0x100000));
  EXPECT_FALSE(overlaps(0x6000, 0x1000));
}

// Code that is made at run time may come over such.
TEST(Lookup, OtherCodeInARange) {
  FakeTarget target;
  const auto made = [](std::uint64_t begin) { return wl_mapping{begin, begin + 0x1000, 0, 0, WL_MAPPING_GENERATED}; };
  target.set_mappings({{0x2000, 0x3000, 0, 1, WL_MAPPING_FILE},
                       made(0x4000),
                       {0x5000, 0x6000, 0, 0, WL_MAPPING_MANAGED},
                       {0x6000, 0x7000, 0, 2, WL_MAPPING_FILE},
                       made(0x10000),
                       made(0x12000),
                       made(0x14000),
                       made(0x16000),
                       made(0x18000)});
  const auto has = [&](std::uint64_t begin, std::uint64_t end, bool file) {
    return wl_has_other_code(&target.env, target.maps, target.count, begin, end, file ? 1 : 0) != 0;
  };
  for (const bool file : {false, true}) {
    EXPECT_TRUE(has(0x1000, 0x2001, file));
    EXPECT_FALSE(has(0x1000, 0x2000, file));
    EXPECT_FALSE(has(0x3000, 0x4000, file));
    EXPECT_TRUE(has(0x4000, 0x6001, file)) << "the third one is a file's";
    EXPECT_TRUE(has(0x10000, 0x17000, file)) << "more than are looked at";
    EXPECT_EQ(has(0x4800, 0x6000, file), file);
    EXPECT_EQ(has(0x10000, 0x15000, file), file) << "three";
  }
}

// Go has its stack pointer in r12 while it is in the vdso, whose own rows need no register but the usual ones.
TEST(Lookup, TheVdsosTableTracksWhatItsCallersNeed) {
  const int fd = os::open_vdso();
  if (fd < 0) GTEST_SKIP() << "no vdso here";
  const auto file = MappedFile::from_fd(fd);
  const auto image = image::ElfImage::parse(file->bytes());
  ASSERT_TRUE(image.has_value());
  auto ignore = [](const Error&) {};
  const auto table = table::compile_elf(*image, ignore);
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(table->x_reg(), image->machine() == image::Machine::kX86_64 ? 12 : WL_NO_XREG);
  ::close(fd);
}

// Whatever the bytes are, a look-up ends and stays inside the arena.
TEST(Lookup, SurvivesRandomTables) {
  std::mt19937_64 random(3);
  FakeTarget target;
  auto big = target.arena->allocate(WL_CHUNK_SIZE - 64);
  ASSERT_TRUE(big.has_value());
  auto* bytes = reinterpret_cast<std::uint64_t*>(target.arena->at(*big));
  for (std::size_t i = 0; i < (WL_CHUNK_SIZE - 64) / 8; ++i) bytes[i] = random();
  // Directory entries must name this chunk, the only one there is.
  for (std::size_t i = 0; i < 64; ++i) bytes[i] &= 0x0001ffff'0001ffffULL;
  wl_module module{};
  module.page_count = 128;
  module.directory = *big;
  module.palette = 8;
  for (int i = 0; i < 200'000; ++i) {
    wl_covered covered;
    wl_find_rule_ref(&target.env, &module, random() & 0x7fffff, &covered);
  }
}

}  // namespace
}  // namespace windlass
