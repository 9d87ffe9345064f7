// ARM64 rows applied and unwind codes executed give the same caller.
#include <gtest/gtest.h>

#include "formats/winarm64/lower.h"
#include "support/pe_builder.h"
#include "support/pe_corpora.h"
#include "support/same_rows.h"
#include "walk/apply.h"

namespace windlass {
namespace {

// Every address is readable and holds a value of its own: what is loaded from elsewhere differs.
struct DistinctMemory {
  bool read(std::uint64_t address, void* to, std::size_t size) const {
    auto* out = static_cast<std::uint8_t*>(to);
    for (std::size_t i = 0; i < size; i += 8) {
      const std::uint64_t value = ((address + i) * 0x9e37'79b9'7f4a'7c15) & ~(std::uint64_t{1} << 55);
      std::memcpy(out + i, &value, std::min<std::size_t>(8, size - i));
    }
    return true;
  }
};

struct Snapshot {
  std::uint64_t value[80] = {}, at[80] = {};
  bool known[80] = {};
  Snapshot(const Registers& registers, const SavedLocations& saved) {
    registers.for_each([&](RegisterNumber reg, std::uint64_t is) {
      value[reg] = is;
      at[reg] = saved.at(registers, reg);
      known[reg] = true;
    });
  }
};

class RowChecker {
 public:
  explicit RowChecker(const winarm64::Functions& functions)
      : functions_(functions), evaluator_(functions), single_(functions), keeper_(functions) {
    keeper_.keep_rows();
    for (RegisterNumber reg = 0; reg < 32; ++reg) frame_.set(reg, 0x7000'0000 + reg * 0x10'0010ULL);
    for (RegisterNumber reg = 72; reg < 80; ++reg) frame_.set(reg, 0x1234 + reg);
  }

  std::size_t rows = 0, compared = 0, without = 0, different = 0;
  std::string first;

  void check(winarm64::RuntimeFunction function, bool everything) {
    std::uint64_t next = function.begin;
    rows_.clear();
    const auto done = evaluator_.for_each_row(
        function,
        [&](const FrameRow& row) {
          ++rows;
          rows_.push_back(row);
          if (row.begin > next) no_row(next, row.begin);
          next = row.end;
          const std::uint64_t words = (row.end - row.begin) / 4;
          for (std::uint64_t i = 0; i < words; ++i)
            if (everything || words < 16 || i < 2 || i + 2 > words || i == words / 2)
              compare(function, row, row.begin + i * 4);
        },
        [](const Error&) {});
    ASSERT_TRUE(done) << done.error().text();
    keep_rows(function);
    winarm64::Expansion storage;
    const auto record = winarm64::read_record(functions_.image(), function, storage);
    ASSERT_TRUE(record);
    no_row(next, std::uint64_t{function.begin} + record->length);
  }

 private:
  // What is kept from the functions before changes nothing.
  void keep_rows(winarm64::RuntimeFunction function) {
    std::size_t count = 0;
    bool same = true;
    const auto compare = [&](const FrameRow& row) {
      same = same && count < rows_.size() && test::is_same(row, rows_[count]) && numbers_.fits(row, keeper_.number());
      ++count;
    };
    ASSERT_TRUE(keeper_.for_each_row(function, compare, [](const Error&) {}));
    if (!same || count != rows_.size()) differs(function.begin, "rows kept from other functions");
  }

  void compare(winarm64::RuntimeFunction function, const FrameRow& row, std::uint64_t rva) {
    ++compared;
    compare(row, rva);
    FrameRow alone;
    if (const auto one = single_.row_at(function, static_cast<std::uint32_t>(rva), alone); !one)
      return differs(rva, "row_at: " + one.error().text());
    compare(alone, rva);
  }
  void compare(const FrameRow& row, std::uint64_t rva) {
    frame_.set_pc(CodeAddress::instruction(rva));
    Registers executed(Architecture::kAArch64), applied(Architecture::kAArch64);
    SavedLocations executed_at, applied_at;
    const auto unwound = winarm64::virtual_unwind(functions_, {}, DistinctMemory(), frame_, executed, &executed_at);
    walk::ApplyContext context;
    context.pac_mask = winarm64::ExecContext().pac_mask;
    context.slots_below_sp_are_dead = false;
    const auto status = walk::apply(row, DistinctMemory(), context, frame_, applied, &applied_at);
    if (!unwound || !status.ok())
      return differs(rva, !unwound ? unwound.error().text() : "row: " + status.error.text());
    if (executed.pc() != applied.pc()) differs(rva, "pc");
    const Snapshot one(executed, executed_at), other(applied, applied_at);
    for (RegisterNumber reg = 0; reg < 80; ++reg)
      if (one.value[reg] != other.value[reg] || one.at[reg] != other.at[reg] || one.known[reg] != other.known[reg])
        return differs(rva, "register " + std::to_string(reg));
  }
  // None in compilers' output; fuzz_winarm64 sees to it that rows are silent only where they must be.
  void no_row(std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t rva = from; rva < to; rva += 4) ++without;
  }
  void differs(std::uint64_t rva, const std::string& how) {
    if (++different == 1) first = std::to_string(rva) + ": " + how;
  }

  const winarm64::Functions& functions_;
  winarm64::RowEvaluator evaluator_, single_, keeper_;
  std::vector<FrameRow> rows_;  // of the function
  test::RowNumbers numbers_;
  Registers frame_{Architecture::kAArch64};
};

TEST(WinArm64Rows, EqualToExecution) {
  const auto corpora = test::pe_corpora(WINDLASS_PE_CORPORA, 1, image::PeMachine::kArm64);
  if (corpora.empty()) GTEST_SKIP() << test::missing_corpora(WINDLASS_PE_CORPORA);
  for (const test::PeCorpus& corpus : corpora) {
    for (const std::string& path : corpus.files) {
      const auto opened = test::open_pe(path);
      ASSERT_TRUE(opened) << path;
      const image::PeImage& image = opened->image;
      const winarm64::Functions functions(image);
      RowChecker checker(functions);
      const std::size_t stride = test::whole() || functions.size() < 10000 ? 1 : 4;
      for (std::size_t i = 0; i < functions.size(); i += stride) checker.check(functions.stored(i), test::whole());
      std::printf("%-14s %zu rows, %zu instructions compared, %zu different, %zu without a row\n", corpus.name.c_str(),
                  checker.rows, checker.compared, checker.different, checker.without);
      EXPECT_EQ(checker.different, 0U) << path << " " << checker.first;
      EXPECT_EQ(checker.without, 0U) << path;
      EXPECT_GT(checker.compared, checker.rows);
    }
  }
}

}  // namespace
}  // namespace windlass
