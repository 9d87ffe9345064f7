#include "lookup/table/compile.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <type_traits>
#include <utility>

#include "formats/dwarf/interpreter.h"
#include "formats/image/unwind_sections.h"
#include "lookup/sources/cfi_sections.h"
#include "lookup/sources/elf_rows.h"
#include "lookup/sources/stack_end.h"
#include "lookup/table/compile_rows.h"
#include "lookup/table/extra_register.h"
#include "lookup/table/small_gaps.h"
#include "lookup/table/trace_state.h"
#include "lookup/table/unusual_rows.h"

namespace windlass::table {

namespace {

// Counts, for every row, from which register its CFA comes, where that is neither stack nor frame pointer. True then.
template <typename Registers>
bool note_cfa_register(std::uint64_t low, CfaRegisterUse& use) {
  const std::uint8_t reg = low >> PackedRule::kCfaReg & 0xff;
  if (reg == Registers::kStackPointer || reg == Registers::kFramePointer) [[likely]]
    return false;
  const std::uint8_t kind = low & 0xff;
  if (kind == WL_CFA_NONE || kind == WL_CFA_UNSUPPORTED) return false;
  ++use[reg];
  return true;
}

constexpr std::int32_t kPushedByLinkageTable = 16;

// What the second row of _dl_runtime_resolve, or of _start, which has no caller, says is as true of the first
// instruction.
void correct_rows(std::span<TableBuilder::PendingRow> rows) {
  bool resolver = false;
  for (TableBuilder::PendingRow& row : rows) {
    const auto rule = std::bit_cast<TraceRule>(PackedRule{row.low, row.high});
    if (!above_cfa(rule)) [[likely]]
      continue;
    const TraceRule right = corrected_aarch64_rule(rule);
    if (&row == rows.data() + 1) resolver = right.cfa_kind == WL_CFA_REG;
    const PackedRule packed = PackedRule::of(right);
    row.low = packed.low, row.high = packed.high;
  }
  const auto ra_kind = [](const TableBuilder::PendingRow& row) { return row.low >> PackedRule::kRaKind & 15; };
  if (rows.size() < 2 || ra_kind(rows[0]) != WL_REG_IN_REG) return;
  if (resolver) {
    rows[0].low = rows[1].low, rows[0].high = rows[1].high;
    PackedRule::put(rows[0].low, PackedRule::kCfaOffset, 0xffffffff, static_cast<std::uint64_t>(kPushedByLinkageTable));
  } else if (ra_kind(rows[1]) == WL_REG_UNDEFINED) {
    PackedRule::put(rows[0].low, PackedRule::kRaKind, 15, WL_REG_UNDEFINED);
    PackedRule::put(rows[0].high, PackedRule::kRaOffset, 0xffff, 0);
  }
}

// Is the function of these rows called, as far as its first row says? (lookup/sources/stack_end.h)
bool is_called(const dwarf::Fde& fde, std::span<const TableBuilder::PendingRow> rows, Architecture architecture) {
  std::size_t number = 0;  // of those at the begin; the last one holds
  while (number < rows.size() && rows[number].begin == fde.begin) ++number;
  if (number == 0) return false;
  const TraceRule first = PackedRule{rows[number - 1].low, rows[number - 1].high}.rule();
  return first.cfa_kind == WL_CFA_REG && sources::is_called(CfaRule::at(first.cfa_reg, first.cfa_offset), architecture);
}

void leave_ends(std::span<TableBuilder::PendingRow> rows) {
  for (TableBuilder::PendingRow& row : rows) {
    const PackedRule packed = PackedRule::of(without_end(PackedRule{row.low, row.high}.rule()));
    row.low = packed.low, row.high = packed.high;
  }
}

template <typename Registers>
EvaluationStats compile_with(const dwarf::CfiSection& section, const image::ElfImage* image, std::uint8_t x_reg,
                             TableBuilder& builder, CfaRegisterUse& use, dwarf::ErrorSink report) {
  using State = TraceState<Registers>;
  EvaluationStats stats;
  dwarf::CfiReader reader(section, report);
  dwarf::CfaInterpreter<State> interpreter(section, State(x_reg));
  // One function's rows: numbering rules while interpreting would let every mispredicted branch throw away that work.
  RawBuffer<TableBuilder::PendingRow> pending;
  std::uint64_t covered = 0;
  for (dwarf::Fde fde; reader.next_fde(fde);) {
    ++stats.functions;
    builder.begin_function(fde.begin, fde.end);
    // A row ends with an instruction that moves the location, or with the program.
    pending.clear();
    pending.make_room(fde.instructions.size() + 1);
    TableBuilder::PendingRow* out = pending.end();
    const auto emit = [&](std::uint64_t begin, std::uint64_t end, const State& state) __attribute__((always_inline)) {
      out->begin = begin;
      state.read(out->low, out->high);
      ++out;
      covered = end;
    };
    covered = fde.begin;
    const auto done = interpreter.run(fde, emit);
    pending.resize(static_cast<std::size_t>(out - pending.data()));
    const std::span rows(pending.begin(), pending.end());
    const bool called = is_called(fde, rows, section.architecture);
    if constexpr (std::is_same_v<Registers, Arm64Registers>)
      correct_rows(rows);
    else {
      leave_popped_frames(rows);
      if (image != nullptr) correct_frame_addresses(*image, rows);
    }
    bool other_register = false, ends = false;
    for (const TableBuilder::PendingRow& row : pending) {
      other_register |= note_cfa_register<Registers>(row.low, use);
      ends |= ends_stack(row);
    }
    if (ends && image != nullptr) [[unlikely]]
      leave_refuted_ends(*image, section.architecture, fde.end, rows);
    if (!called) [[unlikely]]
      leave_ends(rows);
    if (image == nullptr || !add_unusual_rows(*image, fde, rows, other_register, builder)) builder.rows(rows);
    if (!done) [[unlikely]] {
      builder.cut_function(covered);
      report(done.error());
    }
    builder.end_function();
  }
  stats.bytes = section.bytes.size();
  return stats;
}

template <typename Registers>
EvaluationStats evaluate_with(const dwarf::CfiSection& section, dwarf::ErrorSink report) {
  using State = TraceState<Registers>;
  EvaluationStats stats;
  dwarf::CfiReader reader(section, report);
  dwarf::CfaInterpreter<State> interpreter(section, State(WL_NO_XREG));
  for (dwarf::Fde fde; reader.next_fde(fde);) {
    ++stats.functions;
    const auto done = interpreter.run(fde, [&](std::uint64_t begin, std::uint64_t, const State& state) {
      std::uint64_t low, high;
      state.read(low, high);
      ++stats.rows;
      stats.checksum += begin ^ low ^ high;
    });
    if (!done) [[unlikely]]
      report(done.error());
  }
  stats.bytes = section.bytes.size();
  return stats;
}

// Evaluates the entries that may need an extra register, to know it before everything is evaluated.
template <typename Registers>
void foresee_use(const dwarf::CfiSection& section, CfaRegisterUse& use) {
  using State = TraceState<Registers>;
  auto ignore = [](const Error&) {};
  dwarf::CfiReader reader(section, ignore);
  dwarf::CfaInterpreter<State> interpreter(section, State(WL_NO_XREG));
  for (const std::uint64_t offset : suspect_entries(section)) {
    const auto fde = reader.fde_at(offset);
    if (!fde) continue;  // a CIE, or malformed
    (void)interpreter.run(*fde, [&](std::uint64_t, std::uint64_t, const State& state) {
      (void)note_cfa_register<Registers>(state.rule().low, use);
    });
  }
}

// Modules that need no register themselves have room for one that their callers may need: Go has its stack pointer in
// r12 while it is in the vdso. Only small ones, as that is: elsewhere it would take rows that hardly anybody asks for.
std::uint8_t register_of_callers(const std::vector<AddressRange>& executable, Architecture architecture) {
  std::uint64_t size = 0;
  for (const AddressRange& range : executable) size += range.end - range.begin;
  return architecture == Architecture::kX86_64 && size < 1u << WL_PAGE_SHIFT ? x86_64::kR12 : WL_NO_XREG;
}

}  // namespace

TraceRule corrected_aarch64_rule(TraceRule rule) {
  if (!above_cfa(rule)) return rule;
  if (rule.cfa_kind == WL_CFA_REG && rule.cfa_reg == Arm64Registers::kStackPointer && rule.ra_offset == 8 &&
      rule.cfa_offset <= INT32_MAX - kPushedByLinkageTable) {
    rule.cfa_offset += kPushedByLinkageTable, rule.ra_offset -= kPushedByLinkageTable;
  } else {
    rule = for_the_agent(rule);
  }
  return rule;
}

EvaluationStats compile_section(const dwarf::CfiSection& section, std::uint8_t x_reg, TableBuilder& builder,
                                CfaRegisterUse& use, dwarf::ErrorSink report, const image::ElfImage* image) {
  use.resize(kTrackable);
  builder.set_x_reg(x_reg);
  return section.architecture == Architecture::kAArch64
             ? compile_with<Arm64Registers>(section, image, x_reg, builder, use, report)
             : compile_with<X64Registers>(section, image, x_reg, builder, use, report);
}

EvaluationStats evaluate_section(const dwarf::CfiSection& section, dwarf::ErrorSink report) {
  return section.architecture == Architecture::kAArch64 ? evaluate_with<Arm64Registers>(section, report)
                                                        : evaluate_with<X64Registers>(section, report);
}

Expected<UnwindTable> compile_elf(const image::ElfImage& image, dwarf::ErrorSink report) {
  std::vector<AddressRange> executable;
  for (const image::ExecutableSegment& segment : image.executable_segments())
    executable.push_back(
        {segment.vaddr, segment.vaddr + std::min<std::uint64_t>(segment.memsz, ~0ull - segment.vaddr)});
  const image::UnwindSections found = sources::find_row_sections(image, report);
  const sources::ElfRows others(image, report);

  const auto compile = [&](std::uint8_t x_reg, CfaRegisterUse& use, dwarf::ErrorSink sink) {
    TableBuilder builder(executable);
    std::size_t bytes = 0;
    for (const dwarf::CfiSection& section : found.sections) bytes += section.bytes.size();
    builder.reserve(bytes / 4, bytes / 24);  // more than there will be: a row takes 5 to 7 bytes, an FDE 24
    bool begun = false;
    const auto begin = [&] {
      if (std::exchange(begun, true)) builder.begin_fallback();
    };
    const auto of_section = [&](const dwarf::CfiSection& section) {
      begin();
      compile_section(section, x_reg, builder, use, sink, &image);
    };
    const auto of_other = [&](const sources::UnwindSource& rows) {
      begin();
      (void)add_functions(rows, x_reg, builder, sink);
    };
    others.each(found, of_section, of_other);
    SmallGaps gaps(image, executable, x_reg);
    builder.add_small_gaps([&](TableBuilder::SmallGap& gap) { gaps.look_at(gap); });
    return builder.finish();
  };
  const Architecture architecture = image::architecture_of(image.machine());
  const auto choose = [&](const CfaRegisterUse& used) {
    const std::uint8_t chosen = choose_extra_register(used, preserved_registers(architecture));
    return chosen == WL_NO_XREG ? register_of_callers(executable, architecture) : chosen;
  };
  CfaRegisterUse given(kTrackable);  // of what is rows
  const auto count = [&](const sources::UnwindSource& rows) { count_cfa_registers(rows, given); };
  others.each(
      {}, [](const dwarf::CfiSection&) {}, count);
  CfaRegisterUse foreseen = given, use = given;
  for (const dwarf::CfiSection& section : found.sections)
    architecture == Architecture::kAArch64 ? foresee_use<Arm64Registers>(section, foreseen)
                                           : foresee_use<X64Registers>(section, foreseen);
  const std::uint8_t guess = choose(foreseen);
  auto table = compile(guess, use, report);
  const std::uint8_t right = choose(use);
  if (right == guess || !table) return table;
  auto ignore = [](const Error&) {};  // all have been reported
  return compile(right, use, ignore);
}

}  // namespace windlass::table
