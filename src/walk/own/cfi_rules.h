// The rules of pcs that no walk has met, from the call frame information of their modules.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>

#include "formats/dwarf/interpreter.h"
#include "lookup/table/trace_state.h"
#include "walk/own/modules.h"
#include "windlass/backtrace.h"

namespace windlass::walk {

// For one walk. Neighbouring frames are mostly of one module, and their functions of one CIE: what is known of these is
// kept until another one comes. Allocates nothing. Signal-safe.
class CfiRules {
 public:
  // The rule of the instruction or the return address `key` (rules.h). False where no row covers it, or it cannot be
  // read. The module stays loaded meanwhile: a frame of it is on the stack. Logarithmic in the module's functions,
  // linear in the function's call frame instructions up to there.
  [[nodiscard]] bool find(const OwnModule& module, std::uint64_t key, table::TraceRule& rule);

 private:
  static constexpr bool kIsX64 = kOwnArchitecture == Architecture::kX86_64;
  using State = table::TraceState<std::conditional_t<kIsX64, table::X64Registers, table::Arm64Registers>>;
  using Interpreter = dwarf::CfaInterpreter<State, dwarf::InlineStorage>;

  [[nodiscard]] bool may_have_landed(std::uint64_t key) const;

  const OwnModule* module_ = nullptr;
  MappedCfi cfi_;
  dwarf::LocatedFde found_;
  std::optional<Interpreter> interpreter_;  // of found_.cie
  std::uint64_t interpreted_ = 0;           // where that CIE is
};

}  // namespace windlass::walk
