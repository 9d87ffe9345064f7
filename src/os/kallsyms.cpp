#include "os/kallsyms.h"

#include <charconv>

#include "os/text_lines.h"

namespace windlass::os {

namespace {

bool parse_symbol(std::string_view line, KernelSymbol& to) {
  std::string_view address = next_field(line);
  const auto type = next_field(line);
  if (address.starts_with("0x")) address.remove_prefix(2);
  const auto [end, error] = std::from_chars(address.data(), address.data() + address.size(), to.address, 16);
  if (error != std::errc() || end != address.data() + address.size() || type.size() != 1) return false;
  to.type = type[0];
  to.name = next_field(line);
  to.module = next_field(line);
  return !to.name.empty();
}

}  // namespace

std::string_view next_field(std::string_view& line) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  std::size_t begin = 0;
  while (begin < line.size() && is_blank(line[begin])) ++begin;
  std::size_t end = begin;
  while (end < line.size() && !is_blank(line[end])) ++end;
  const auto field = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return field;
}

bool for_each_kernel_symbol(const std::string& path, std::string& note,
                            FunctionRef<bool(const KernelSymbol& symbol)> symbol) {
  return for_each_line(path, note, [&](std::string_view line) {
    KernelSymbol found;
    return !parse_symbol(line, found) || symbol(found);
  });
}

std::uint64_t find_kernel_symbol(const std::string& path, std::string_view name) {
  std::uint64_t found = 0;
  std::string note;
  (void)for_each_kernel_symbol(path, note, [&](const KernelSymbol& symbol) {
    if (symbol.module.empty() && symbol.name == name) found = symbol.address;
    return symbol.module.empty() && found == 0;
  });
  return found;
}

}  // namespace windlass::os
