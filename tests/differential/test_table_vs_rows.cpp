// Every row of real binaries, found again in the compiled table: at its first address, its last and some between.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <vector>

#include "base/mapped_file.h"
#include "base/registers.h"
#include "formats/dwarf/lower.h"
#include "formats/image/elf.h"
#include "formats/image/unwind_sections.h"
#include "lookup/sources/stack_end.h"
#include "lookup/table/compile.h"
#include "lookup/table/project.h"
#include "lookup/table/unusual_rows.h"

namespace windlass::table {
namespace {

struct Range {
  std::uint64_t begin, end;
};

// What holds where: the FDE that begins last. Only needed to know whether an FDE is hidden by another.
class Coverage {
 public:
  explicit Coverage(std::vector<Range> ranges) : ranges_(std::move(ranges)) {
    std::ranges::stable_sort(ranges_, {}, &Range::begin);
  }
  // Is there another FDE than `range` in it?
  [[nodiscard]] bool shared(const Range& range) const {
    const auto first = std::ranges::lower_bound(ranges_, range.begin, {}, &Range::begin);
    const auto next = std::ranges::lower_bound(ranges_, range.end, {}, &Range::begin);
    if (next - first > 1) return true;  // one begins inside
    return first != ranges_.begin() && std::prev(first)->end > range.begin;
  }
  template <typename Callback>
  void for_each_gap(Callback&& callback) const {
    std::uint64_t covered = 0;
    for (const Range& range : ranges_) {
      if (covered != 0 && range.begin > covered) callback(covered, range.begin);
      covered = std::max(covered, range.end);
    }
  }

 private:
  std::vector<Range> ranges_;
};

// Of which the table may leave rows to the agent (lookup/table/unusual_rows.h): with a CFA from another register than
// rsp and rbp (longjmp, setcontext, libgcc's ways to a landing pad: one row for what were several), or with one row
// throughout (swapcontext).
bool may_be_unusual(dwarf::RowEvaluator& evaluator, const dwarf::Fde& fde) {
  std::size_t rows = 0;
  bool other = false;
  (void)evaluator.for_each_row(fde, [&](const FrameRow& row) {
    ++rows;
    other |= row.cfa.is(CfaRule::kRegister) && !row.cfa.is_at(x86_64::kRsp) && !row.cfa.is_at(x86_64::kRbp);
  });
  return rows == 1 || other;
}
constexpr std::uint64_t kMostUnusual = 64;  // look-ups of such rows in a file

void hold(const std::string& path) {
  SCOPED_TRACE(path);
  const auto mapped = MappedFile::open(path);
  ASSERT_TRUE(mapped) << mapped.error().text();
  const auto elf = image::ElfImage::parse(mapped->bytes());
  ASSERT_TRUE(elf) << elf.error().text();
  auto report = [&](const Error& error) { ADD_FAILURE() << path << ": " << error.text(); };
  const auto table = compile(*sources::make_source(*elf), report);
  ASSERT_TRUE(table) << table.error().text();

  const auto section = image::find_eh_frame(*elf);
  ASSERT_TRUE(section);
  std::vector<Range> ranges;
  {
    dwarf::CfiReader reader(*section, report);
    for (dwarf::Fde fde; reader.next_fde(fde);)
      if (fde.begin < fde.end) ranges.push_back({fde.begin, fde.end});
  }
  const Coverage coverage(ranges);

  std::uint64_t rows = 0, lookups = 0, hidden = 0, wrong = 0, left_to_agent = 0, kinds[8] = {};
  dwarf::CfiReader reader(*section, report);
  dwarf::RowEvaluator evaluator(*section);
  for (dwarf::Fde fde; reader.next_fde(fde);) {
    if (fde.begin < fde.end && coverage.shared({fde.begin, fde.end})) {
      ++hidden;
      continue;
    }
    const bool unusual = may_be_unusual(evaluator, fde);
    bool called = false;
    const auto check_row = [&](const FrameRow& row) {
      ++rows;
      if (row.begin == fde.begin) called = sources::is_called(row.cfa, section->architecture);
      const TraceRule by_row = project(row, section->architecture, table->x_reg());
      const TraceRule want = called ? by_row : without_end(by_row);
      ++kinds[want.cfa_kind];
      const std::uint64_t size = row.end - row.begin;
      const std::uint64_t at[] = {row.begin, row.begin + size / 3, row.begin + size / 2, row.end - 1};
      for (const std::uint64_t address : at) {
        ++lookups;
        const TraceRule& got = table->find(address);
        if (std::memcmp(&got, &want, sizeof want) == 0) continue;
        if (unusual && got.cfa_kind == WL_CFA_UNSUPPORTED && ++left_to_agent <= kMostUnusual) continue;
        if (++wrong <= 5)
          ADD_FAILURE() << std::hex << address << std::dec << " in row of FDE at " << fde.offset << ": cfa kind "
                        << int{got.cfa_kind} << "/" << int{want.cfa_kind} << " reg " << int{got.cfa_reg} << "/"
                        << int{want.cfa_reg} << " offset " << got.cfa_offset << "/" << want.cfa_offset << " fp "
                        << int{got.fp_kind} << "/" << int{want.fp_kind} << " ra " << int{got.ra_kind} << "/"
                        << int{want.ra_kind} << " x " << int{got.x_kind} << "/" << int{want.x_kind};
      }
    };
    EXPECT_TRUE(evaluator.for_each_row(fde, check_row)) << fde.offset;
  }
  EXPECT_EQ(wrong, 0u);

  // Between functions: nothing, but for padding of less than 16 bytes, and code as small that goes on as before.
  coverage.for_each_gap([&](std::uint64_t begin, std::uint64_t end) {
    const TraceRule& first = table->find(begin);
    if (end - begin > 15) {
      EXPECT_EQ(first.cfa_kind, WL_CFA_NONE) << std::hex << begin;
      EXPECT_EQ(table->find(end - 1).cfa_kind, WL_CFA_NONE) << std::hex << end;
    } else {
      TraceRule before = table->find(begin - 1);
      const std::uint64_t alignment = end & (0 - end);
      if (end - begin >= alignment && first.cfa_kind == WL_CFA_NONE) return;
      if (end - begin >= alignment && first.proof == WL_PROOF_CODE) before.proof = WL_PROOF_CODE;
      EXPECT_TRUE(PackedRule::of(first) == PackedRule::of(before)) << std::hex << begin;
    }
  });
  // readelf -wF counts the same rows; see test_rows_vs_readelf.
  EXPECT_GE(table->stats().raw_rows + left_to_agent, rows);
  std::printf(
      "%-22s %8lu rows, %8lu lookups, %lu wrong, %lu FDEs hidden; cfa: %lu reg, %lu mem, %lu plt, %lu left to "
      "user space; %.3f bytes a row, extra register %d\n",
      std::filesystem::path(path).filename().c_str(), rows, lookups, wrong, hidden, kinds[WL_CFA_REG],
      kinds[WL_CFA_MEM], kinds[WL_CFA_PLT], kinds[WL_CFA_UNSUPPORTED],
      static_cast<double>(table->bytes()) / static_cast<double>(std::max<std::uint64_t>(rows, 1)), table->x_reg());
}

TEST(TableVsRows, RealBinaries) {
  int files = 0;
  for (const char* path : {
           "/lib/x86_64-linux-gnu/libc.so.6",
           "/lib/x86_64-linux-gnu/libm.so.6",
           "/lib64/ld-linux-x86-64.so.2",
           "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
           "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
           "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1",
           "/bin/bash",
           "/usr/bin/perl",
           "/usr/bin/python3",
           "/usr/bin/node",
           "/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus",
           "/usr/lib/chromium/chromium",
       }) {
    if (!std::filesystem::exists(path)) continue;
    hold(path);
    ++files;
  }
  EXPECT_GE(files, 4);  // libc, libm, ld.so and bash are everywhere
}

}  // namespace
}  // namespace windlass::table
