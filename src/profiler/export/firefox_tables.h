// The tables of a Firefox profile that all threads share: strings, libraries, functions, frames, stacks.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json_writer.h"
#include "profiler/export/thread_lines.h"
#include "profiler/profile/profile.h"

namespace windlass::exporter {

class FirefoxTables {
 public:
  explicit FirefoxTables(const profile::Profile& profile);

  // The number of the sample's stack; kNone: it has no frames. Also makes what the stack needs.
  std::uint32_t stack_of(std::uint32_t sample);
  std::uint32_t string_of(std::string_view text);

  void write_libraries(JsonWriter& json) const;
  void write_shared(JsonWriter& json) const;

 private:
  struct Function {
    std::uint32_t name, resource, source, line;
  };
  struct CodeFrame {
    std::uint32_t function, symbol, line, depth;
    std::uint64_t address;
    CodeKind kind;
  };
  struct Symbol {
    std::uint32_t library, name;
    std::uint64_t address;
  };
  struct Stack {
    std::uint32_t prefix, frame;
  };

  [[nodiscard]] std::vector<std::uint32_t> frames_of(const profile::Sample& sample);
  void make_frames(std::uint32_t location);
  std::uint32_t label_frame(std::string_view text);
  std::uint32_t function_of(std::string_view name, std::string_view file, std::uint32_t line, std::uint32_t module);
  std::uint32_t symbol_of(const profile::Location& location, std::string_view name);
  std::uint32_t source_of(std::string_view file);

  const profile::Profile& profile_;
  std::deque<std::string> strings_;
  std::unordered_map<std::string_view, std::uint32_t> string_numbers_;
  std::vector<std::uint32_t> libraries_;   // modules
  std::vector<std::uint32_t> library_of_;  // of each module; kNone: none
  std::vector<Function> functions_;
  std::unordered_map<std::uint64_t, std::uint32_t> function_numbers_;  // by name and resource
  std::vector<std::uint32_t> sources_;                                 // names of files
  std::unordered_map<std::uint32_t, std::uint32_t> source_numbers_;
  std::vector<Symbol> symbols_;
  std::unordered_map<std::uint64_t, std::uint32_t> symbol_numbers_;  // by library and place of the name
  std::vector<CodeFrame> frames_;
  std::vector<std::vector<std::uint32_t>> location_frames_;        // root first; empty: not made yet
  std::unordered_map<std::uint32_t, std::uint32_t> label_frames_;  // by the text
  std::vector<Stack> stacks_;
  std::unordered_map<std::uint64_t, std::uint32_t> stack_numbers_;  // by prefix and frame
};

// Numbers of the categories that write_categories() lists.
[[nodiscard]] std::uint32_t category_of(CodeKind kind);
void write_categories(JsonWriter& json);

}  // namespace windlass::exporter
