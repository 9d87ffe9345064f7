// What naming the addresses of one module gives, before it is merged into the Profile.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profile/profile.h"

namespace windlass::symbols {

// Functions are kept once a module; lines refer to them by index.
class ModuleNames {
 public:
  explicit ModuleNames(std::size_t addresses) : begins(addresses), lines_(addresses) {}

  // `system_name` as in the symbol table or DWARF; demangled here, once a distinct function.
  std::uint32_t function(std::string_view system_name, std::string_view file, std::uint32_t start_line);
  // Innermost frame first.
  void add_line(std::size_t address_index, profile::Line line) { lines_[address_index].push_back(line); }

  [[nodiscard]] bool named(std::size_t address_index) const { return !lines_[address_index].empty(); }
  [[nodiscard]] std::vector<profile::Function>& functions() { return functions_; }
  [[nodiscard]] std::vector<std::vector<profile::Line>>& lines() { return lines_; }

  std::vector<std::uint64_t> begins;  // of the symbol each address lies in; 0: unknown
  bool opened = false;
  std::string note;  // why something could not be read, empty if nothing

 private:
  std::vector<profile::Function> functions_;
  std::vector<std::vector<profile::Line>> lines_;
  std::unordered_map<std::string, std::uint32_t> by_key_;
};

}  // namespace windlass::symbols
