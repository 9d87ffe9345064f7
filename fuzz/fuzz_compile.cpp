// Input: one byte of flags, then a section of call frame information. What the trace projection, evaluated and looked
// up in the table, says of an address must be what the full row projects to.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "check.h"
#include "formats/dwarf/lower.h"
#include "lookup/sources/stack_end.h"
#include "lookup/table/compile.h"
#include "lookup/table/project.h"
#include "support/table_reference.h"
#include "walk_section.h"

namespace {

using namespace windlass;
using namespace windlass::table;

struct Range {
  std::uint64_t begin, end;
};

void print(std::uint64_t at, const TraceRule& got, const TraceRule& want) {
  for (const TraceRule& rule : {got, want})
    std::fprintf(stderr, "%#lx: cfa %d %d %d (%d) fp %d %d ra %d %d x %d %d flags %d proof %d\n", at, rule.cfa_kind,
                 rule.cfa_reg, rule.cfa_offset, rule.cfa_arg, rule.fp_kind, rule.fp_offset, rule.ra_kind,
                 rule.ra_offset, rule.x_kind, rule.x_offset, rule.flags, rule.proof);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 4096) return 0;
  const dwarf::CfiSection section = fuzz::section_of(data, size);
  const std::uint8_t x_reg = (data[0] & 8) != 0 ? (data[0] >> 4) : WL_NO_XREG;

  auto ignore = [](const Error&) {};
  TableBuilder builder;
  CfaRegisterUse use;
  (void)compile_section(section, x_reg, builder, use, ignore);
  const auto table = builder.finish();
  if (!table) {
    FUZZ_CHECK(table.error().code == ErrorCode::kLimit);
    return 0;
  }

  std::vector<Range> ranges;
  dwarf::CfiReader first_pass(section, ignore);
  for (dwarf::Fde fde; first_pass.next_fde(fde);) ranges.push_back({fde.begin, fde.end});
  dwarf::CfiReader reader(section, ignore);
  dwarf::RowEvaluator evaluator(section);
  for (dwarf::Fde fde; reader.next_fde(fde);) {
    const auto overlaps = std::ranges::count_if(
        ranges, [&](const Range& range) { return range.begin < fde.end && fde.begin < range.end; });
    if (overlaps != 1) continue;
    bool called = false;  // else address 0 proves no end in this function
    const auto check_row = [&](const FrameRow& row) {
      // Columns that share a register, and rows the full policy stops at and the trace policy need not keep, are
      // made by no real producer.
      const std::uint64_t column = fde.cie->return_address_register;
      if (column == x_reg || column == frame_pointer(section.architecture) ||
          x_reg == frame_pointer(section.architecture))
        return;
      TraceRule want = project(row, section.architecture, x_reg);
      if (row.begin == fde.begin)
        called = want.cfa_kind == WL_CFA_REG &&
                 sources::is_called(CfaRule::at(want.cfa_reg, want.cfa_offset), section.architecture);
      if (section.architecture == Architecture::kAArch64) {
        if (row.begin == fde.begin && want.ra_kind == WL_REG_IN_REG) return;  // may be taken from the row behind it
        want = corrected_aarch64_rule(want);
      }
      if (!called) want = without_end(want);
      for (const std::uint64_t at : {row.begin, row.begin + (row.end - row.begin) / 2, row.end - 1}) {
        const TraceRule got = table->find(at);
        if (!same(got, want)) print(at, got, want);
        FUZZ_CHECK(same(got, want));
      }
    };
    (void)evaluator.for_each_row(fde, check_row);
  }
  return 0;
}
