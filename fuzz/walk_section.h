// Reads a section of call frame information in every way there is and checks what rows promise.
#pragma once

#include <algorithm>
#include <string>
#include <variant>

#include "check.h"
#include "formats/dwarf/expression.h"
#include "formats/dwarf/instructions.h"
#include "formats/dwarf/lower.h"

namespace windlass::fuzz {

// What a fuzzer's input says: one byte of flags, then the section.
inline dwarf::CfiSection section_of(const std::uint8_t* data, std::size_t size) {
  dwarf::CfiSection section;
  section.is_debug_frame = (data[0] & 1) != 0;
  section.stop_at_terminator = (data[0] & 2) != 0;
  section.architecture = (data[0] & 4) != 0 ? Architecture::kAArch64 : Architecture::kX86_64;
  section.bytes = ByteView(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  section.address = 0x10000;
  return section;
}

inline void evaluate(ByteView expression) {
  const auto reg = [](std::uint64_t number) -> Expected<std::uint64_t> {
    if (number > 40) return fail(ErrorCode::kNotFound, "no such register", number);
    return number * 0x1001;
  };
  const auto memory = [](std::uint64_t address, unsigned size) -> Expected<std::uint64_t> {
    FUZZ_CHECK(size >= 1 && size <= 8);
    if (address % 7 == 3) return fail(ErrorCode::kUnreadable, "memory", address);
    return address ^ size;
  };
  (void)dwarf::evaluate_expression(expression, dwarf::ExpressionTarget{reg, memory, 0x7000});
}

inline void check_expression(ByteView expression, Architecture architecture) {
  std::string text;
  dwarf::append_expression_text(text, expression, architecture);
  for (const char c : text) FUZZ_CHECK(c >= ' ' && c != '"' && c != '\\');  // goes into JSON as it is
  evaluate(expression);
}

inline void check_row(const FrameRow& row, Architecture architecture) {
  if (row.cfa.is(CfaRule::kExpression)) check_expression(row.expression(row.cfa), architecture);
  RegisterNumber last = 0;
  bool first = true;
  for (const RegisterEntry entry : row.registers) {
    FUZZ_CHECK(first || entry.reg > last);
    FUZZ_CHECK(*row.registers.find(entry.reg) == entry.rule);
    first = false;
    last = entry.reg;
    if (entry.rule.is_expression()) check_expression(row.expression(entry.rule), architecture);
  }
}

// `budget` bounds the expressions looked at: an input can name the same bytes in every row.
inline void check_fde(const dwarf::CfiSection& section, dwarf::RowEvaluator& evaluator, const dwarf::Fde& fde,
                      int& budget) {
  FUZZ_CHECK(fde.cie != nullptr && fde.end >= fde.begin);
  std::uint64_t expected = fde.begin;
  const auto done = evaluator.for_each_row(fde, [&](const FrameRow& row) {
    FUZZ_CHECK(row.begin >= expected && row.end > row.begin && row.end <= fde.end);
    expected = row.end;
    if (budget-- > 0) check_row(row, section.architecture);
  });
  if (done && fde.end > fde.begin) {
    FUZZ_CHECK(expected == fde.end);
    if (budget-- > 0) {
      FrameRow last;
      FUZZ_CHECK(evaluator.row_at(fde, fde.end - 1, last) && last.end == fde.end);
    }
  }
  for (const ByteView program : {fde.cie->instructions, fde.instructions}) {
    dwarf::CfaInstructionReader reader(section, *fde.cie, program, fde.begin);
    while (!reader.at_end() && reader.next()) continue;
  }
}

inline void walk_section(const dwarf::CfiSection& section) {
  std::size_t errors = 0;
  const auto report = [&](const Error& error) {
    ++errors;
    FUZZ_CHECK(error.what != nullptr && error.what[0] != 0);
  };
  dwarf::CfiReader reader(section, report);
  dwarf::RowEvaluator evaluator(section);
  int budget = 2000;
  std::size_t entries = 0;
  for (dwarf::CfiReader::Entry entry; reader.next(entry); ++entries) {
    if (entry.cie == nullptr) check_fde(section, evaluator, entry.fde, budget);
  }
  // Every entry and every error is at least four bytes of progress; an FDE can have two errors.
  FUZZ_CHECK(entries + errors <= section.bytes.size() / 2 + 4);
  // The other way to walk sees the same FDEs.
  dwarf::CfiReader again(section, report);
  std::size_t fdes = 0;
  for (dwarf::Fde fde; again.next_fde(fde);) ++fdes;
  FUZZ_CHECK(fdes <= entries);
}

}  // namespace windlass::fuzz
