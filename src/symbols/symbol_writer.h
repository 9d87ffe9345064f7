// Writes symbol files (formats/wlsym). Not in the static file, which has no compressor.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "formats/wlsym/guesses.h"
#include "formats/wlsym/layout.h"
#include "formats/wlsym/wlsym.h"
#include "windlass/error.h"

namespace windlass::symbols {

// What a file is of.
struct SymbolFileSubject {
  std::string build_id, name;
  wlsym::Detail detail = wlsym::Detail::kLines;
  std::vector<wlsym::SegmentEntry> segments{};
};

class SymbolFileWriter {
 public:
  // The number of a function, which is the same for equal ones.
  std::uint32_t function(std::string_view name, std::string_view file, std::uint32_t line);
  // The names of the code from an address on, until the next call; without frames the code has none. Addresses ascend.
  void add(std::uint64_t address, std::uint64_t begin, std::span<const wlsym::Frame> frames);
  // Ends the writing. kLimit: the file would have more than 4 GiB, or too many functions.
  [[nodiscard]] Expected<std::string> finish(const SymbolFileSubject& subject);

 private:
  struct Function {
    std::string name;
    std::uint32_t file, line;
    std::uint32_t number = ~0u;  // in the file: in the order of use
  };
  struct Block {
    std::uint64_t first;
    std::uint32_t first_function;
    std::string packed;
    std::uint32_t raw;
  };
  using ScopeKey = std::tuple<std::uint32_t, std::uint32_t, std::int64_t>;  // function, parent, call line or begin

  std::uint32_t number_of(std::uint32_t function, wlsym::RangeColumn column);
  std::uint32_t scope_of(std::uint64_t begin, std::span<const wlsym::Frame> frames);
  [[nodiscard]] std::uint64_t code_of(std::uint32_t scope) const;
  [[nodiscard]] std::uint64_t code_of_caller(std::uint32_t scope) const;  // of the next scope
  void add_line(std::uint32_t scope, std::uint32_t function, std::int64_t line);
  void begin_block(std::uint64_t address);
  void end_block();
  [[nodiscard]] std::vector<Block> function_blocks() const;
  [[nodiscard]] std::vector<Block> path_blocks() const;

  std::vector<Function> functions_;
  std::unordered_map<std::string, std::uint32_t> functions_by_key_, paths_by_text_;
  std::vector<std::string> paths_;
  std::vector<std::uint32_t> order_;  // of functions_: those that are used
  std::vector<Block> blocks_;

  // Of the block that is being made.
  bool is_open_ = false;
  std::uint64_t first_ = 0, last_address_ = 0, last_begin_ = 0;
  std::uint32_t first_function_ = 0;
  struct Scope {
    std::uint32_t parent;  // ~0u: none
    bool has_line;
    std::int64_t last_line;
  };
  std::uint32_t last_scope_ = 0, next_scope_ = 0;  // the last range's; behind those of all ranges
  std::map<ScopeKey, std::uint32_t> scopes_;
  std::vector<Scope> scope_list_;
  wlsym::Guesses guesses_;
  std::size_t ranges_ = 0;
  std::string columns_[wlsym::kRangeColumns];

  // Of the last range, so that equal ones become one.
  bool has_last_ = false;
  std::uint64_t last_range_begin_ = 0;
  std::vector<wlsym::Frame> last_frames_;
};

}  // namespace windlass::symbols
