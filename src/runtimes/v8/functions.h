// The functions of JavaScript that a V8 has met: what they are called, their scripts and lines.
//
// v8/v8, src/objects/{shared-function-info,scope-info,script}.tq.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtimes/v8/heap.h"

namespace windlass::runtimes::v8 {

struct Function {
  std::string name;                 // empty: it has none
  std::uint32_t script = 0;         // index
  std::int32_t begin = 0, end = 0;  // characters of the script
};

// Bounds: kMaxFunctions, kMaxScripts, kMaxSource of all sources read; what is beyond has no name, or no line.
class Functions {
 public:
  static constexpr std::size_t kMaxFunctions = std::size_t{1} << 18, kMaxScripts = std::size_t{1} << 14;
  static constexpr std::uint64_t kMaxSource = std::uint64_t{1} << 30, kMaxLines = std::uint64_t{1} << 26;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  // The number of the function that a SharedFunctionInfo stands for; kNone: it is none, or too many are known. What it
  // says is read anew each time: the collector moves functions, and others come to where they were.
  [[nodiscard]] std::uint32_t number_of(const Heap& heap, Tagged shared);
  [[nodiscard]] const Function& function(std::uint32_t number) const { return functions_[number]; }
  [[nodiscard]] const std::string& file_of(std::uint32_t number) const {
    return scripts_[functions_[number].script].name;
  }
  // Of a position in its script; where that is not one of the function, of its begin. 0: not known.
  [[nodiscard]] std::uint32_t line_of(std::uint32_t number, std::int32_t position) const;

 private:
  struct Script {
    std::string name;
    std::vector<std::uint32_t> line_ends;  // positions behind each line
  };

  [[nodiscard]] std::uint32_t script_of(const Heap& heap, Tagged script);
  [[nodiscard]] std::vector<std::uint32_t> line_ends(const Heap& heap, const Heap::Characters& source);
  [[nodiscard]] static Function read(const Heap& heap, Tagged name_or_scope);

  std::vector<Function> functions_;
  std::vector<Script> scripts_;
  std::unordered_map<std::string, std::uint32_t> by_bytes_;  // by what their objects have
  std::unordered_map<std::string, std::uint32_t> by_value_;  // by what is known of them
  std::unordered_map<std::string, std::uint32_t> script_by_value_;
  std::uint64_t source_ = 0, lines_ = 0;
};

}  // namespace windlass::runtimes::v8
