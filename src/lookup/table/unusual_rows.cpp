#include "lookup/table/unusual_rows.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "base/registers.h"
#include "flow/eh_return.h"
#include "flow/frame_address.h"
#include "flow/stack_switch.h"
#include "lookup/sources/stack_end.h"
#include "lookup/table/linear_scan.h"

namespace windlass::table {
namespace {

using Row = TableBuilder::PendingRow;

constexpr RegisterNumber kRcx = 2;

std::uint8_t cfa_kind(const Row& row) { return row.low & 0xff; }
RegisterNumber cfa_register(const Row& row) { return row.low >> PackedRule::kCfaReg & 0xff; }
TraceRule rule_of(const Row& row) { return PackedRule{row.low, row.high}.rule(); }

bool is_caller_saved(const Row& row) {
  return (cfa_kind(row) == WL_CFA_REG || cfa_kind(row) == WL_CFA_MEM) && cfa_register(row) != x86_64::kRsp &&
         !is_callee_saved(Architecture::kX86_64, cfa_register(row));
}

// A CFA that points to a jmp_buf or ucontext, and a return address from there, loaded already or not.
bool is_context(const Row& row) {
  const TraceRule rule = rule_of(row);
  return above_cfa(rule) || (rule.cfa_kind == WL_CFA_REG && is_caller_saved(row) && rule.ra_kind == WL_REG_IN_REG);
}

Row row_for_the_agent(std::uint64_t begin, const Row& row) {
  const PackedRule packed = PackedRule::of(for_the_agent(rule_of(row)));
  return {begin, packed.low, packed.high};
}

// Leaves [begin, end) to the agent.
void leave_to_agent(std::vector<Row>& rows, std::uint64_t begin, std::uint64_t end, std::uint64_t function_end) {
  std::vector<Row> result;
  const Row* behind = nullptr;  // in force at `end`
  for (const Row& row : rows) {
    if (row.begin < begin) result.push_back(row);
    if (row.begin <= end) behind = &row;
  }
  if (behind == nullptr) return;
  result.push_back(row_for_the_agent(begin, *behind));
  if (end < function_end) result.push_back({end, behind->low, behind->high});
  for (const Row& row : rows)
    if (row.begin > end) result.push_back(row);
  rows = std::move(result);
}

// The rows of one function, given to the builder with copies of a CFA that is in rsp.
void give(std::span<const Row> rows, std::uint64_t begin, std::uint64_t end, const std::optional<ByteView>& function,
          TableBuilder& builder) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const std::uint64_t row_end = i + 1 < rows.size() ? rows[i + 1].begin : end;
    const PackedRule rule{row.low, row.high};
    builder.row(row.begin, rule);
    if (!function || !is_caller_saved(row) || row_end <= row.begin || row_end > end) continue;
    PackedRule copy = rule;
    PackedRule::put(copy.low, PackedRule::kCfaReg, 0xff, x86_64::kRsp);
    each_copy_in_rsp(*function->sub(row.begin - begin, row_end - row.begin), row.begin, *function, begin,
                     cfa_register(row), [&](std::uint64_t copy_begin, std::uint64_t copy_end) {
                       builder.row(copy_begin, copy);
                       if (copy_end < row_end) builder.row(copy_end, rule);
                     });
  }
}

// A function of hand-written code that describes nothing but its entry.
bool add_switching_rows(const image::ElfImage& image, const dwarf::Fde& fde, const Row& row, TableBuilder& builder) {
  if (fde.end - fde.begin > flow::kLargestSwitch || cfa_kind(row) != WL_CFA_REG || cfa_register(row) != x86_64::kRsp)
    return false;
  const auto function = image.at_address(fde.begin, fde.end - fde.begin);
  const auto replaced = function ? flow::replaces_stack(*function, fde.begin) : std::nullopt;
  if (!replaced || *replaced >= fde.end) [[likely]]
    return false;
  builder.row(row.begin, PackedRule{row.low, row.high});
  builder.row(*replaced, for_the_agent(rule_of(row)));
  return true;
}

// libgcc's on AArch64, which save x0 and x1.
bool add_landing_rows(const image::ElfImage& image, const dwarf::Fde& fde, std::span<const Row> rows,
                      TableBuilder& builder) {
  constexpr std::uint8_t kOffsetOfX0 = 0x80, kOffsetOfX1 = 0x81;  // DW_CFA_offset
  const std::span instructions(fde.instructions.u8(), fde.instructions.size());
  const auto has = [&](std::uint8_t code) { return std::ranges::find(instructions, code) != instructions.end(); };
  if (!has(kOffsetOfX0) || !has(kOffsetOfX1)) [[likely]]
    return false;
  const auto function = image.at_address(fde.begin, fde.end - fde.begin);
  const auto parts = function ? flow::landing_parts(*function, fde.begin) : std::vector<flow::EhReturnPart>();
  if (parts.empty()) return false;
  std::vector<Row> right(rows.begin(), rows.end());
  for (const flow::EhReturnPart& part : parts) leave_to_agent(right, part.begin, part.end, fde.end);
  for (const Row& row : right) builder.row(row.begin, PackedRule{row.low, row.high});
  return true;
}

}  // namespace

void correct_frame_addresses(const image::ElfImage& image, std::span<Row> rows) {
  const auto is_at = [](const Row& row, RegisterNumber reg) {
    return cfa_kind(row) == WL_CFA_REG && cfa_register(row) == reg;
  };
  const auto offset = [](const Row& row) { return static_cast<std::int32_t>(row.low >> PackedRule::kCfaOffset); };
  constexpr std::int32_t kUsual = 16;  // push rbp; mov rbp, rsp
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const Row& before = rows[i - 1];
    if (!is_at(rows[i], x86_64::kRbp) || offset(rows[i]) == kUsual || !is_at(before, x86_64::kRsp) ||
        offset(before) != offset(rows[i])) [[likely]]
      continue;
    const auto code = image.at_address(rows[i].begin - flow::kLongestFrameAddress, flow::kLongestFrameAddress);
    const std::int32_t distance = code ? flow::frame_address_at_end(*code) : 0;
    if (distance <= 0) continue;
    const TraceRule known = rule_of(before);
    const std::int32_t wrong = offset(rows[i]);
    for (; i < rows.size() && is_at(rows[i], x86_64::kRbp) && offset(rows[i]) == wrong; ++i) {
      TraceRule rule = rule_of(rows[i]);
      rule.cfa_offset -= distance;
      // What is saved behind the instruction counts from rbp, too.
      const bool same = rule.x_kind == known.x_kind && rule.x_offset == known.x_offset;
      if (rule.x_kind == WL_REG_CFA && !same) rule.x_offset = static_cast<std::int16_t>(rule.x_offset + distance);
      const PackedRule packed = PackedRule::of(rule);
      rows[i].low = packed.low, rows[i].high = packed.high;
    }
  }
}

void leave_popped_frames(std::span<Row> rows) {
  bool has_frame = false;
  for (Row& row : rows) {
    const bool by_rbp = cfa_register(row) == x86_64::kRbp;
    has_frame |= by_rbp && cfa_kind(row) == WL_CFA_MEM;
    if ((row.low >> PackedRule::kFpKind & 15) != WL_REG_FP || !has_frame || by_rbp) [[likely]]
      continue;
    row = row_for_the_agent(row.begin, row);
  }
}

void leave_refuted_ends(const image::ElfImage& image, Architecture architecture, std::uint64_t end,
                        std::span<Row> rows) {
  const auto read = [&image](std::uint64_t address, void* to, std::size_t size) {
    const auto code = image.at_address(address, size);
    if (code) std::memcpy(to, code->data(), size);
    return code.has_value();
  };
  for (Row& row : rows)
    if (ends_stack(row) && sources::returns(read, row.begin, end, architecture))
      row = row_for_the_agent(row.begin, row);
}

bool add_unusual_rows(const image::ElfImage& image, const dwarf::Fde& fde, std::span<const Row> rows,
                      bool other_register, TableBuilder& builder) {
  if (image.machine() == image::Machine::kAArch64) return add_landing_rows(image, fde, rows, builder);
  if (rows.size() == 1 && !other_register) return add_switching_rows(image, fde, rows[0], builder);
  if (!other_register || std::ranges::none_of(rows, is_caller_saved)) [[likely]]
    return false;
  const auto code = image.at_address(fde.begin, fde.end - fde.begin);
  const std::optional<ByteView> function = code ? std::optional(*code) : std::nullopt;
  std::vector<Row> right;
  bool from_rcx = false;
  for (const Row& row : rows) {
    right.push_back(is_context(row) ? row_for_the_agent(row.begin, row) : row);
    from_rcx |= cfa_kind(row) == WL_CFA_REG && cfa_register(row) == kRcx;
  }
  if (from_rcx && function)
    if (const auto part = flow::eh_return_part(*function, fde.begin))
      leave_to_agent(right, part->begin, part->end, fde.end);
  give(right, fde.begin, fde.end, function, builder);
  return true;
}

}  // namespace windlass::table
