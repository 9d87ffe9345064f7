// What a TableBuilder must answer, computed the slow and obvious way: by looking at every function for every address.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <vector>

#include "lookup/table/builder.h"

namespace windlass::table {

inline bool same(const TraceRule& a, const TraceRule& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

struct ReferenceTable {
  struct Function {
    std::uint64_t begin, end;
    std::map<std::uint64_t, TraceRule> rows;
    bool fallback = false;  // holds only where no other does
  };
  std::vector<AddressRange> executable;
  std::vector<Function> functions;

  // Gives everything to a real builder.
  [[nodiscard]] Expected<UnwindTable> build() const {
    TableBuilder builder(executable);
    for (const bool fallback : {false, true}) {
      if (fallback) builder.begin_fallback();
      for (const Function& function : functions) {
        if (function.fallback != fallback) continue;
        builder.begin_function(function.begin, function.end);
        for (const auto& [begin, rule] : function.rows) builder.row(begin, rule);
        builder.end_function();
      }
    }
    return builder.finish();
  }

  [[nodiscard]] bool is_executable(std::uint64_t address) const {
    return executable.empty() || std::ranges::any_of(executable, [&](const AddressRange& range) {
             return address >= range.begin && address < range.end;
           });
  }
  // A function without rows, or wholly outside the executable ranges, is as if it had not been given.
  [[nodiscard]] bool counts(const Function& function) const {
    if (function.begin >= function.end || function.rows.empty()) return false;
    return executable.empty() || std::ranges::any_of(executable, [&](const AddressRange& range) {
             return range.begin < range.end && function.begin < range.end && range.begin < function.end;
           });
  }
  [[nodiscard]] const Function* covering(std::uint64_t address) const {
    const Function* best = nullptr;
    for (const Function& function : functions) {
      if (!counts(function) || address < function.begin || address >= function.end) continue;
      if (best == nullptr || (best->fallback && !function.fallback) ||
          (best->fallback == function.fallback && function.begin > best->begin))
        best = &function;
    }
    return best;
  }
  [[nodiscard]] TraceRule find(std::uint64_t address) const {
    if (!is_executable(address)) return {};
    const Function* function = covering(address);
    if (function == nullptr) {  // padding?
      std::optional<std::uint64_t> before, after;
      for (const Function& other : functions) {
        if (!counts(other)) continue;
        if (other.end <= address) before = std::max(before.value_or(0), other.end);
        if (other.begin > address) after = std::min(after.value_or(~0ull), other.begin);
      }
      if (!before || !after || *after - *before > 15) return {};
      address = *before - 1;
      function = covering(address);
    }
    const auto next = function->rows.upper_bound(address);
    return next == function->rows.begin() ? TraceRule{} : std::prev(next)->second;
  }
};

}  // namespace windlass::table
