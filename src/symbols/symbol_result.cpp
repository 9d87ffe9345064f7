#include "symbols/symbol_result.h"

#include "symbols/symbolize.h"

namespace windlass::symbols {

std::uint32_t FunctionTable::add(std::string_view system_name, std::string_view file, std::uint32_t start_line) {
  std::string key;
  key.reserve(system_name.size() + file.size() + 16);
  key.append(system_name).append(1, '\0').append(file).append(1, '\0').append(std::to_string(start_line));
  const auto [entry, is_new] = by_key_.try_emplace(std::move(key), static_cast<std::uint32_t>(functions_.size()));
  if (is_new) {
    std::string system(system_name);
    functions_.push_back(
        {.name = demangle(system.c_str()), .system_name = system, .file = std::string(file), .start_line = start_line});
  }
  return entry->second;
}

}  // namespace windlass::symbols
