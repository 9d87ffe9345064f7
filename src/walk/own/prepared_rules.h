// The rules of a module as prepare() makes them: the module's table, and each of its rules in the form that walks keep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "lookup/table/unwind_table.h"
#include "walk/own/rules.h"

namespace windlass::walk {

// Immutable. `tag`: the module's.
class PreparedRules {
 public:
  PreparedRules(table::UnwindTable table, std::uint16_t tag) : table_(std::move(table)) {
    for (const table::TraceRule& rule : table_.rules()) {
      PackedStep& step = steps_.emplace_back(PackedStep::other(PackedStep::kAllRegisters, tag));
      (void)PackedStep::pack(rule, false, tag, step);
    }
  }
  // The rule in force at an address as the module's file numbers it; of kind WL_CFA_NONE where there is none.
  [[nodiscard]] const table::TraceRule& rule(std::uint64_t address) const { return table_.find(address); }
  // The same of the call that returns behind `address`. One that is not simple says nothing.
  [[nodiscard]] PackedStep step(std::uint64_t address) const {
    return steps_[static_cast<std::size_t>(&table_.find(address) - table_.rules().data())];
  }

 private:
  table::UnwindTable table_;
  std::vector<PackedStep> steps_;  // of each of the table's rules
};

}  // namespace windlass::walk
