#include "formats/go/code_map.h"

#include <algorithm>

namespace windlass::runtimes::go {
namespace {

// Offsets of a record's fields, counted from behind the function's address or offset. The fields are: name, arguments,
// deferreturn, the three lists that every function has, and the number of further lists. Go 1.16 adds the unit, Go 1.20
// the line. Four bytes follow.
constexpr std::uint64_t kName = 0, kStack = 12, kFile = 16, kLine = 20, kValueCount = 24, kUnit = 28, kBeginsLine = 32;

std::uint64_t entry_half(const Table& table) { return table.form >= TableForm::k1_18 ? 4 : 8; }

std::uint64_t bytes_at(const Table& table) {
  return table.form == TableForm::k1_2 ? kUnit : table.form < TableForm::k1_20 ? kUnit + 4 : kUnit + 8;
}

// 32 bits of a LEB128 number; false at the end of the bytes.
bool read_number(const std::uint8_t*& at, const std::uint8_t* end, std::uint32_t& to) {
  to = 0;
  for (unsigned shift = 0; at != end && shift < 35; shift += 7) {
    const std::uint8_t byte = *at++;
    to |= static_cast<std::uint32_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return true;
  }
  return false;
}

constexpr const char* kCut = "a list of values ends in the middle";

std::int32_t signed_number(std::uint32_t zigzag) {
  return static_cast<std::int32_t>((zigzag >> 1) ^ (0 - (zigzag & 1)));
}

}  // namespace

std::uint64_t CodeMap::begin_of(std::uint64_t number) const {
  const std::uint64_t half = entry_half(table_);
  if (half == 4) return table_.text + table_.index.at<std::uint32_t>(number * 8).value_or(0);
  const std::uint64_t stored = table_.index.at<std::uint64_t>(number * 16).value_or(0);
  return stored == 0 ? 0 : stored - table_.base;
}

Expected<Function> CodeMap::function_at(std::uint64_t address) const {
  const std::uint64_t count = table_.function_count;
  if (count == 0 || address < begin_of(0) || address >= begin_of(count))
    return fail(ErrorCode::kNotFound, "no function of Go's is there", address);
  std::uint64_t low = 0, high = count;  // begin_of(low) <= address < begin_of(high)
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (begin_of(middle) <= address ? low : high) = middle;
  }
  auto found = function(low);
  // Nothing returns into padding: what is looked up right in front of a function returns to its first instruction.
  const bool is_padding = found && address + 1 == found->end && low + 1 < count && found->stack != 0 &&
                          value_at(*found, found->stack, address) < 0;
  return is_padding ? function(low + 1) : found;
}

Expected<Function> CodeMap::function(std::uint64_t number) const {
  const std::uint64_t half = entry_half(table_);
  Function found;
  found.begin = begin_of(number), found.end = begin_of(number + 1);
  const std::uint64_t at = number * 2 * half + half;
  found.record = half == 4 ? table_.index.at<std::uint32_t>(at).value_or(~0u)
                           : table_.index.at<std::uint64_t>(at).value_or(~std::uint64_t{0});
  const std::uint64_t bytes = bytes_at(table_);
  const auto record = table_.functions.sub(found.record, half + bytes + 4);
  if (!record || found.end <= found.begin)
    return fail(ErrorCode::kMalformed, "a function of Go's table has no record", table_.index.origin() + at,
                found.record);
  const auto fields = *record->sub(half, bytes + 4);
  found.name = *fields.at<std::int32_t>(kName);
  found.stack = *fields.at<std::uint32_t>(kStack);
  found.file = *fields.at<std::uint32_t>(kFile);
  found.line = *fields.at<std::uint32_t>(kLine);
  found.value_count = *fields.at<std::uint32_t>(kValueCount);
  if (table_.form != TableForm::k1_2) found.unit = *fields.at<std::uint32_t>(kUnit);
  if (table_.form == TableForm::k1_20) found.begins_line = *fields.at<std::uint32_t>(kBeginsLine);
  found.special = *fields.at<std::uint8_t>(bytes);
  if (table_.form != TableForm::k1_2) found.flags = *fields.at<std::uint8_t>(bytes + 1);
  found.data_count = *fields.at<std::uint8_t>(bytes + 3);
  found.value_lists = found.record + half + bytes + 4;
  return found;
}

std::string_view CodeMap::name(std::int32_t offset) const {
  return offset < 0 ? std::string_view() : table_.names.string_at(static_cast<std::uint64_t>(offset)).value_or("");
}

// A list is pairs of numbers. The first number is the change of the value, which begins as -1. The second is how many
// quanta of instructions the new value holds for. A change by 0, except the first, ends the list
// (src/runtime/symtab.go, step()).
Expected<void> CodeMap::for_each_value(const Function& function, std::uint32_t list, ValueSink value) const {
  const ByteView values = table_.values;
  if (list == 0) return {};  // what is no function but a mark in the code has none
  if (list >= values.size())
    return fail(ErrorCode::kMalformed, "a list of values lies outside of Go's table",
                table_.functions.origin() + function.record, list);
  const std::uint8_t *at = values.u8() + list, *const end = values.u8() + values.size();
  std::uint32_t now = ~0u;  // wraps where the table is damaged
  for (std::uint64_t pc = function.begin; pc < function.end;) {
    std::uint32_t change = 0, size = 0;
    const bool first = pc == function.begin;
    if (!read_number(at, end, change)) return fail(ErrorCode::kTruncated, kCut, values.origin() + list, pc);
    if (change == 0 && !first) return {};  // padding follows
    if (!read_number(at, end, size) || size == 0) return fail(ErrorCode::kMalformed, kCut, values.origin() + list, pc);
    now += static_cast<std::uint32_t>(signed_number(change));
    const std::uint64_t next = std::min(function.end, pc + std::uint64_t{size} * table_.quantum);
    if (!value(pc, next, static_cast<std::int32_t>(now))) return {};
    pc = next;
  }
  return {};
}

std::int32_t CodeMap::value_at(const Function& function, std::uint32_t list, std::uint64_t address) const {
  std::int32_t found = -1;
  const auto look = [&](std::uint64_t, std::uint64_t end, std::int32_t value) {
    if (address < end) found = value;
    return address >= end;
  };
  if (list != 0) (void)for_each_value(function, list, look);
  return found;
}

std::uint32_t CodeMap::value_list(const Function& function, std::uint32_t number) const {
  if (number >= function.value_count) return 0;
  return table_.functions.at<std::uint32_t>(function.value_lists + std::uint64_t{number} * 4).value_or(0);
}

}  // namespace windlass::runtimes::go
