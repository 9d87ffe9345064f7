#include "formats/winarm64/dump.h"

#include <iterator>

#include <fmt/format.h>

namespace windlass::winarm64 {

CodeSet::CodeSet(const UnwindRecord& record) : codes_(record.codes) {
  add_sequence(0);
  if (record.single_epilogue) add_sequence(record.epilogue_index);
  for (std::uint32_t i = 0; i < record.scope_count(); ++i) add_sequence(record.scope(i).index);
}

// Up to `end`: behind an `end_c` the codes of the parent go on.
void CodeSet::add_sequence(std::uint64_t index) {
  while (index < codes_.size()) {
    if ((bits_[index / 64] >> (index % 64) & 1) != 0) return;
    bits_[index / 64] |= std::uint64_t{1} << (index % 64);
    const auto code = code_at(codes_, index);
    if (!code || code->operation == Operation::kEnd) return;
    index += code->size;
  }
}

namespace {

std::string register_text(RegisterFile file, unsigned number) {
  if (file == RegisterFile::kX && number == 30) return "lr";
  constexpr char kLetters[] = {'?', 'x', 'd', 'q', 'z', 'p'};
  return fmt::format("{}{}", kLetters[static_cast<unsigned>(file)], number);
}

void append_save(std::string& out, const UnwindCode& code, bool prologue) {
  out += prologue ? (code.pair ? "stp " : "str ") : (code.pair ? "ldp " : "ldr ");
  out += register_text(code.file, code.reg);
  if (code.pair) out += ", " + register_text(code.file, code.second);
  const bool scalable = code.file == RegisterFile::kZ || code.file == RegisterFile::kP;
  const auto to = std::back_inserter(out);
  if (scalable)
    fmt::format_to(to, ", [sp, #{}, mul vl]", code.value);
  else if (!code.writeback)
    fmt::format_to(to, ", [sp, #{}]", code.value);
  else if (prologue)
    fmt::format_to(to, ", [sp, #-{}]!", code.value);
  else
    fmt::format_to(to, ", [sp], #{}", code.value);
}

}  // namespace

void append_instruction(std::string& out, const UnwindCode& code, bool prologue) {
  if (code.saves()) {
    append_save(out, code, prologue);
    return;
  }
  const auto to = std::back_inserter(out);
  switch (code.operation) {
    case Operation::kAllocS:
    case Operation::kAllocM:
    case Operation::kAllocL: fmt::format_to(to, "{} sp, sp, #{}", prologue ? "sub" : "add", code.value); break;
    case Operation::kAllocZ: fmt::format_to(to, "addvl sp, sp, #{}{}", prologue ? "-" : "", code.value); break;
    case Operation::kSetFp: out += prologue ? "mov x29, sp" : "mov sp, x29"; break;
    case Operation::kAddFp: fmt::format_to(to, "{}, #{}", prologue ? "add x29, sp" : "sub sp, x29", code.value); break;
    case Operation::kNop: out += "nop"; break;
    case Operation::kSaveNext: out += prologue ? "stp of the next pair" : "ldp of the next pair"; break;
    case Operation::kPacSignLr: out += prologue ? "pacibsp" : "autibsp"; break;
    default: break;
  }
}

}  // namespace windlass::winarm64
