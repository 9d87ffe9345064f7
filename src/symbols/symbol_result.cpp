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

// The evaluator calls the interpreted functions, and they call the functions inlined in the evaluator.
void add_native_lines(profile::Location& location, std::span<const profile::Line> native) {
  if (native.empty()) return;
  const auto evaluator = native.end() - 1;
  location.lines.insert(location.lines.begin(), native.begin(), evaluator);
  location.lines.insert(location.lines.end(), evaluator, native.end());
}

void demangle_generated(profile::Profile& profile) {
  for (auto& function : profile.functions)
    if (function.name == function.system_name) function.name = demangle(function.system_name.c_str());
}

}  // namespace windlass::symbols
