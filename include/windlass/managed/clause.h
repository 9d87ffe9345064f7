// The exception tables of methods. managed/exception.h has the functions that use them.
//
// For example, a method with one clause that catches everything:
//
//   const Clause clause{
//       .kind = ClauseKind::kFilter, .begin = 4, .end = 20, .handler = catches, .filter = Clause::kAlways};
//   method.clauses = {&clause, 1};
#pragma once

#include <cstdint>

namespace windlass::managed {

// The kind of a clause.
enum class ClauseKind : std::uint8_t { kCatch, kFilter, kFinally, kFault };

// An entry of a method's exception table. Inner clauses come before those around them. Of clauses with the same range,
// the first that catches is taken.
struct Clause {
  ClauseKind kind = ClauseKind::kCatch;
  std::uint32_t begin = 0;    // The protected code: offsets in the method's code.
  std::uint32_t end = 0;      // The byte behind the last.
  std::uint64_t handler = 0;  // The address of the funclet that handles or cleans up.
  std::uint64_t filter = 0;   // kFilter: the address of the filter, or kAlways.
  std::uint64_t user = 0;     // The runtime's own, for example the type that is caught.
  // Without a handler: where the method itself handles the exception. The object is in rax or x0.
  std::uint64_t resume = 0;
  // A filter that accepts every exception.
  static constexpr std::uint64_t kAlways = 1;
};

}  // namespace windlass::managed
