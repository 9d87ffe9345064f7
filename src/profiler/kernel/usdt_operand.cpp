#include "profiler/kernel/usdt_operand.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <iterator>

namespace windlass::profiler {
namespace {

std::optional<std::int64_t> signed_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  std::int64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc{} || read.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

#if defined(__x86_64__)

// In the order of the kernel's pt_regs, with the names of their lower parts.
constexpr std::array<std::array<std::string_view, 5>, 20> kRegisters{{{"r15", "r15d", "r15w", "r15b"},
                                                                      {"r14", "r14d", "r14w", "r14b"},
                                                                      {"r13", "r13d", "r13w", "r13b"},
                                                                      {"r12", "r12d", "r12w", "r12b"},
                                                                      {"rbp", "ebp", "bp", "bpl"},
                                                                      {"rbx", "ebx", "bx", "bl"},
                                                                      {"r11", "r11d", "r11w", "r11b"},
                                                                      {"r10", "r10d", "r10w", "r10b"},
                                                                      {"r9", "r9d", "r9w", "r9b"},
                                                                      {"r8", "r8d", "r8w", "r8b"},
                                                                      {"rax", "eax", "ax", "al"},
                                                                      {"rcx", "ecx", "cx", "cl"},
                                                                      {"rdx", "edx", "dx", "dl"},
                                                                      {"rsi", "esi", "si", "sil"},
                                                                      {"rdi", "edi", "di", "dil"},
                                                                      {},
                                                                      {},
                                                                      {},
                                                                      {},
                                                                      {"rsp", "esp", "sp", "spl"}}};

std::optional<std::uint16_t> register_at(std::string_view name) {
  if (name.empty()) return std::nullopt;
  for (std::size_t i = 0; i < kRegisters.size(); ++i)
    if (std::ranges::find(kRegisters[i], name) != kRegisters[i].end()) return static_cast<std::uint16_t>(8 * i);
  return std::nullopt;
}

// "%rdi", "$5", "-20(%rbp)"
bool read_place(std::string_view text, wl_operand& operand) {
  const auto with_register = [&](std::string_view name, wl_operand_kind kind) {
    if (!name.starts_with('%')) return false;
    const auto at = register_at(name.substr(1));
    if (!at) return false;
    operand.registers_at = *at;
    operand.kind = static_cast<__u8>(kind);
    return true;
  };
  if (text.starts_with('$')) {
    const auto value = signed_number(text.substr(1));
    operand.kind = WL_OPERAND_CONSTANT;
    operand.offset = value.value_or(0);
    return value.has_value();
  }
  const std::size_t open = text.find('(');
  if (open == std::string_view::npos) return with_register(text, WL_OPERAND_REGISTER);
  const auto offset = open == 0 ? 0 : signed_number(text.substr(0, open));
  if (!offset || !text.ends_with(')')) return false;
  operand.offset = *offset;
  return with_register(text.substr(open + 1, text.size() - open - 2), WL_OPERAND_MEMORY);
}

#else

std::optional<std::uint16_t> register_at(std::string_view name) {
  if (name == "sp") return std::uint16_t{31 * 8};
  if (!name.starts_with('x') && !name.starts_with('w')) return std::nullopt;
  const auto number = signed_number(name.substr(1));
  if (!number || *number < 0 || *number > 30) return std::nullopt;
  return static_cast<std::uint16_t>(8 * *number);
}

// "x0", "5", "[sp, 16]"
bool read_place(std::string_view text, wl_operand& operand) {
  if (const auto value = signed_number(text)) {
    operand.kind = WL_OPERAND_CONSTANT;
    operand.offset = *value;
    return true;
  }
  const bool is_memory = text.starts_with('[') && text.ends_with(']');
  if (is_memory) text = text.substr(1, text.size() - 2);
  const std::size_t comma = std::min(text.find(','), text.size());
  const auto at = register_at(text.substr(0, comma));
  if (!at || (comma != text.size() && !is_memory)) return false;
  operand.registers_at = *at;
  operand.kind = static_cast<__u8>(is_memory ? WL_OPERAND_MEMORY : WL_OPERAND_REGISTER);
  if (comma == text.size()) return true;
  text.remove_prefix(comma + 1);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const auto offset = signed_number(text);
  operand.offset = offset.value_or(0);
  return offset.has_value();
}

#endif

// "-4@PLACE": the size in bytes, negative for a signed value.
std::optional<wl_operand> read_operand(std::string_view text) {
  const std::size_t at = text.find('@');
  if (at == std::string_view::npos) return std::nullopt;
  const auto size = signed_number(text.substr(0, at));
  if (!size) return std::nullopt;
  const std::int64_t bytes = *size < 0 ? -*size : *size;
  if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8) return std::nullopt;
  wl_operand operand{};
  operand.bits = static_cast<__u8>(8 * bytes);
  operand.is_signed = *size < 0 ? 1 : 0;
  return read_place(text.substr(at + 1), operand) ? std::optional(operand) : std::nullopt;
}

}  // namespace

// The blank in "[sp, 16]" separates nothing.
std::vector<std::optional<wl_operand>> parse_operands(std::string_view text) {
  std::vector<std::optional<wl_operand>> operands;
  while (!text.empty()) {
    if (text.starts_with(' ')) {
      text.remove_prefix(1);
      continue;
    }
    std::size_t end = std::min(text.find(' '), text.size());
    if (const std::size_t open = text.find('['); open < end) end = std::min(text.find(']', open), text.size() - 1) + 1;
    operands.push_back(read_operand(text.substr(0, end)));
    text.remove_prefix(end);
  }
  return operands;
}

wl_operand function_argument(unsigned number) {
  wl_operand operand{};
  operand.kind = WL_OPERAND_REGISTER;
  operand.bits = 64;
#if defined(__x86_64__)
  constexpr std::uint16_t kArguments[] = {14 * 8, 13 * 8, 12 * 8, 11 * 8, 9 * 8, 8 * 8};  // rdi, rsi, rdx, rcx, r8, r9
  operand.registers_at = kArguments[number % std::size(kArguments)];
#else
  operand.registers_at = static_cast<std::uint16_t>(8 * number);
#endif
  return operand;
}

}  // namespace windlass::profiler
