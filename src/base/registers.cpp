#include "base/registers.h"

#include <array>
#include <iterator>

namespace windlass {
namespace {

struct NamedRange {
  std::uint16_t first;
  std::uint16_t count;  // of names "prefix0", "prefix1", ...; 1 with `index` -1: the name itself
  std::string_view prefix;
  int index;  // of the first name
};

constexpr int kPlain = -1;

constexpr NamedRange kX86_64Names[] = {
    {0, 1, "rax", kPlain},      {1, 1, "rdx", kPlain},     {2, 1, "rcx", kPlain},
    {3, 1, "rbx", kPlain},      {4, 1, "rsi", kPlain},     {5, 1, "rdi", kPlain},
    {6, 1, "rbp", kPlain},      {7, 1, "rsp", kPlain},     {8, 8, "r", 8},
    {16, 1, "rip", kPlain},     {17, 16, "xmm", 0},        {33, 8, "st", 0},
    {41, 8, "mm", 0},           {49, 1, "rflags", kPlain}, {50, 1, "es", kPlain},
    {51, 1, "cs", kPlain},      {52, 1, "ss", kPlain},     {53, 1, "ds", kPlain},
    {54, 1, "fs", kPlain},      {55, 1, "gs", kPlain},     {58, 1, "fs.base", kPlain},
    {59, 1, "gs.base", kPlain}, {62, 1, "tr", kPlain},     {63, 1, "ldtr", kPlain},
    {64, 1, "mxcsr", kPlain},   {65, 1, "fcw", kPlain},    {66, 1, "fsw", kPlain},
    {67, 16, "xmm", 16},        {118, 8, "k", 0},          {126, 4, "bnd", 0},
};

constexpr NamedRange kAArch64Names[] = {
    {0, 31, "x", 0},       {31, 1, "sp", kPlain},  {33, 1, "elr", kPlain}, {34, 1, "ra_sign_state", kPlain},
    {46, 1, "vg", kPlain}, {47, 1, "ffr", kPlain}, {48, 16, "p", 0},       {64, 32, "v", 0},
    {96, 32, "z", 0},
};

constexpr NamedRange kI386Names[] = {
    {0, 1, "eax", kPlain}, {1, 1, "ecx", kPlain},    {2, 1, "edx", kPlain},  {3, 1, "ebx", kPlain},
    {4, 1, "esp", kPlain}, {5, 1, "ebp", kPlain},    {6, 1, "esi", kPlain},  {7, 1, "edi", kPlain},
    {8, 1, "eip", kPlain}, {9, 1, "eflags", kPlain}, {11, 8, "st", 0},       {21, 8, "xmm", 0},
    {29, 8, "mm", 0},      {37, 1, "fcw", kPlain},   {38, 1, "fsw", kPlain}, {39, 1, "mxcsr", kPlain},
    {40, 1, "es", kPlain}, {41, 1, "cs", kPlain},    {42, 1, "ss", kPlain},  {43, 1, "ds", kPlain},
    {44, 1, "fs", kPlain}, {45, 1, "gs", kPlain},    {48, 1, "tr", kPlain},  {49, 1, "ldtr", kPlain},
    {93, 8, "k", 0},       {101, 4, "bnd", 0},
};

constexpr std::size_t kNames = 130;
constexpr std::size_t kLongest = 13;

struct NameTable {
  std::array<std::array<char, kLongest + 1>, kNames> text{};
  std::array<std::uint8_t, kNames> length{};
};

template <std::size_t N>
consteval NameTable expand(const NamedRange (&ranges)[N]) {
  NameTable table;
  for (const NamedRange& range : ranges) {
    for (std::uint16_t i = 0; i < range.count; ++i) {
      auto& text = table.text[range.first + i];
      std::size_t length = 0;
      for (const char c : range.prefix) text[length++] = c;
      if (range.index != kPlain) {
        const int number = range.index + i;
        if (number >= 10) text[length++] = static_cast<char>('0' + number / 10);
        text[length++] = static_cast<char>('0' + number % 10);
      }
      table.length[range.first + i] = static_cast<std::uint8_t>(length);
    }
  }
  return table;
}

constexpr NameTable kX86_64Table = expand(kX86_64Names);
constexpr NameTable kAArch64Table = expand(kAArch64Names);
constexpr NameTable kI386Table = expand(kI386Names);

const NameTable& names_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::kX86_64: return kX86_64Table;
    case Architecture::kAArch64: return kAArch64Table;
    case Architecture::kI386: break;
  }
  return kI386Table;
}

}  // namespace

std::string_view register_name(Architecture architecture, std::uint64_t number) {
  if (number >= kNames) return {};
  const NameTable& table = names_of(architecture);
  return {table.text[number].data(), table.length[number]};
}

std::string register_text(Architecture architecture, std::uint64_t number) {
  const std::string_view name = register_name(architecture, number);
  return name.empty() ? "r" + std::to_string(number) : std::string(name);
}

std::optional<std::uint16_t> register_number(Architecture architecture, std::string_view name) {
  for (std::uint16_t number = 0; number < kNames; ++number)
    if (!name.empty() && register_name(architecture, number) == name) return number;
  return std::nullopt;
}

}  // namespace windlass
