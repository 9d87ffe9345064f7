// Unwind information in the form of CoreCLR's checked JIT: DumpUnwindInfo() of jit/unwindarm64.cpp.
#include <fmt/format.h>

#include <iterator>
#include <optional>
#include <string>

#include "formats/winarm64/read.h"

namespace windlass::winarm64 {
namespace {

// The JIT's names: fp and lr, and of vector registers the half that calls preserve.
std::string register_name(const UnwindCode& code, unsigned number) {
  if (code.file != RegisterFile::kX) return fmt::format("d{}", number);
  return number == 29 ? "fp" : number == 30 ? "lr" : fmt::format("x{}", number);
}

// What the code's fields hold, as the JIT calls them: Z, which offset or size, and X, which register.
unsigned z_of(const UnwindCode& code) {
  const bool counts_from_one = code.writeback && code.operation != Operation::kSaveR19R20X;
  return code.value / 8 - (counts_from_one ? 1 : 0);
}
unsigned x_of(const UnwindCode& code) {
  if (code.file != RegisterFile::kX) return code.reg - 8U;
  return (code.reg - 19U) / (code.operation == Operation::kSaveLrpair ? 2 : 1);
}

std::string save_text(const UnwindCode& code) {
  const bool one_register = code.operation != Operation::kSaveFplr && code.operation != Operation::kSaveFplrX &&
                            code.operation != Operation::kSaveR19R20X;
  std::string text(operation_name(code.operation));
  text += one_register ? fmt::format(" X#{} Z#{} (0x{:02X});", x_of(code), z_of(code), z_of(code))
                       : fmt::format(" #{} (0x{:02X});", z_of(code), z_of(code));
  text += fmt::format(" {} {}", code.pair ? "stp" : "str", register_name(code, code.reg));
  if (code.pair) text += ", " + register_name(code, code.second);
  return text + (code.writeback ? fmt::format(", [sp, #-{}]!", code.value) : fmt::format(", [sp, #{}]", code.value));
}

// None where the JIT knows no such code.
std::optional<std::string> code_text(const UnwindCode& code) {
  const std::uint32_t sixteenths = code.value / 16;
  switch (code.operation) {
    case Operation::kAllocS:
      return fmt::format("alloc_s #{} (0x{:02X}); sub sp, sp, #{} (0x{:03X})", sixteenths, sixteenths, code.value,
                         code.value);
    case Operation::kAllocM:
      return fmt::format("alloc_m #{} (0x{:03X}); sub sp, sp, #{} (0x{:04X})", sixteenths, sixteenths, code.value,
                         code.value);
    case Operation::kAllocL:
      return fmt::format("alloc_l {} (0x{:06X}); sub sp, sp, #{} ({:06X})", sixteenths, sixteenths, code.value,
                         code.value);
    case Operation::kSetFp: return "set_fp; mov fp, sp";
    case Operation::kAddFp:
      return fmt::format("add_fp {} (0x{:02X}); add fp, sp, #{}", code.value / 8, code.value / 8, code.value);
    case Operation::kNop:
    case Operation::kEnd:
    case Operation::kEndC:
    case Operation::kSaveNext:
    case Operation::kPacSignLr: return std::string(operation_name(code.operation));
    default: break;
  }
  if (code.saves() && code.operation < Operation::kAllocZ) return save_text(code);
  return std::nullopt;
}

void put_head(std::string& out, const RecordHead& head, std::uint32_t begin, std::uint32_t end) {
  const auto to = std::back_inserter(out);
  const std::uint32_t words = head.length / 4;
  fmt::format_to(
      to,
      "Unwind Info:\n  >> Start offset   : 0x{:06x} (not in unwind data)\n  >>   End offset   : 0x{:06x} (not "
      "in unwind data)\n  Code Words        : {}\n  Epilog Count      : {}\n  E bit             : {}\n  X bit  "
      "           : {}\n  Vers              : {}\n  Function Length   : {} (0x{:05x}) Actual length = {} "
      "(0x{:06x})\n",
      begin, end, head.extended ? 0 : head.words, head.extended ? 0 : head.epilogues, head.single_epilogue ? 1 : 0,
      head.has_handler ? 1 : 0, head.version, words, words, head.length, head.length);
  if (head.extended)
    fmt::format_to(to,
                   "  ---- Extension word ----\n  Extended Code Words        : {}\n  Extended Epilog Count      : {}\n",
                   head.words, head.epilogues);
}

void put_scopes(std::string& out, const UnwindRecord& record, std::uint32_t begin) {
  const auto to = std::back_inserter(out);
  if (record.single_epilogue) {
    fmt::format_to(to, "  --- One epilog, unwind codes at {}\n", record.epilogue_index);
    return;
  }
  out += "  ---- Epilog scopes ----\n";
  if (record.scope_count() == 0) out += "  No epilogs\n";
  for (std::uint32_t i = 0; i < record.scope_count(); ++i) {
    const EpilogueScope scope = record.scope(i);
    fmt::format_to(to,
                   "  ---- Scope {}\n  Epilog Start Offset        : {} (0x{:05x}) Actual offset = {} (0x{:06x}) Offset "
                   "from main function begin = {} (0x{:06x})\n  Epilog Start Index         : {} (0x{:02x})\n",
                   i, scope.start / 4, scope.start / 4, scope.start, scope.start, scope.start + begin,
                   scope.start + begin, scope.index, scope.index);
  }
}

bool epilogue_starts_at(const UnwindRecord& record, std::uint64_t index) {
  if (record.single_epilogue) return record.epilogue_index == index;
  for (std::uint32_t i = 0; i < record.scope_count(); ++i)
    if (record.scope(i).index == index) return true;
  return false;
}

}  // namespace

Expected<std::string> jit_unwind_dump(std::span<const std::byte> bytes, std::uint32_t begin, std::uint32_t end) {
  const ByteView view(bytes.data(), bytes.size());
  const auto head = read_head(view, 0);
  if (!head) return Failure(head.error());
  const auto record = parse_record(view, 0);
  if (!record) return Failure(record.error());
  std::string out;
  put_head(out, *head, begin, end);
  put_scopes(out, *record, begin);
  out += "  ---- Unwind codes ----\n";
  for (std::uint64_t index = 0; index < record->codes.size();) {
    if (epilogue_starts_at(*record, index)) out += fmt::format("    ---- Epilog start at index {} ----\n", index);
    const auto code = code_at(record->codes, index);
    if (!code) return Failure(code.error());
    const auto text = code_text(*code);
    if (!text)
      return fail(ErrorCode::kUnsupported, "unwind code has no form in CoreCLR's dump", record->codes.origin() + index,
                  record->codes.u8()[index]);
    std::string hex;
    for (unsigned i = 0; i < code->size; ++i)
      hex += fmt::format("{}{:02X}", i == 0 ? "" : " ", record->codes.u8()[index + i]);
    out += fmt::format("    {:<12}{}\n", hex, *text);
    index += code->size;
  }
  return out + "\n";
}

}  // namespace windlass::winarm64
