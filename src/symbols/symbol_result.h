// What naming the addresses of one module gives.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profiler/profile/profile.h"

namespace windlass::symbols {

// The functions of one module that were met so far, each once. An entry stays where it is.
class FunctionTable {
 public:
  // `system_name` as in the symbol table or DWARF; demangled here, once a distinct function.
  std::uint32_t add(std::string_view system_name, std::string_view file, std::uint32_t start_line);
  [[nodiscard]] const profile::Function& operator[](std::uint32_t index) const { return functions_[index]; }
  [[nodiscard]] std::deque<profile::Function>& all() { return functions_; }

 private:
  std::deque<profile::Function> functions_;
  std::unordered_map<std::string, std::uint32_t> by_key_;
};

// Lines refer to functions by index into a table, which must outlive it.
class ModuleNames {
 public:
  ModuleNames(std::size_t addresses, FunctionTable& functions)
      : begins(addresses), functions_(&functions), lines_(addresses) {}

  std::uint32_t function(std::string_view system_name, std::string_view file, std::uint32_t start_line) {
    return functions_->add(system_name, file, start_line);
  }
  // Innermost frame first.
  void add_line(std::size_t address_index, profile::Line line) { lines_[address_index].push_back(line); }

  [[nodiscard]] bool named(std::size_t address_index) const { return !lines_[address_index].empty(); }
  [[nodiscard]] std::vector<std::vector<profile::Line>>& lines() { return lines_; }

  // Of the symbol each address lies in, else of its function by the unwind information; 0: unknown.
  std::vector<std::uint64_t> begins;
  bool opened = false;
  std::string note;  // why something could not be read, empty if nothing

 private:
  FunctionTable* functions_;
  std::vector<std::vector<profile::Line>> lines_;
};

// Names a location, whose lines are those of interpreted functions or none. `native` are lines of the same Profile.
void add_native_lines(profile::Location& location, std::span<const profile::Line> native);
// Makes names readable of functions that whoever made the code has named.
void demangle_generated(profile::Profile& profile);

}  // namespace windlass::symbols
