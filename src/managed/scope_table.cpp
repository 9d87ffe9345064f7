// Source: "x64 exception handling" (Microsoft), "Language-specific handler"; struct _SCOPE_TABLE_AMD64 of winnt.h.
#include "windlass/bytes.h"
#include "windlass/managed/exception.h"

namespace windlass::managed {
namespace {

struct Scope {
  std::uint32_t begin;
  std::uint32_t end;
  std::uint32_t handler;  // a filter, 1, or what cleans up
  std::uint32_t target;   // 0: it cleans up
};

}  // namespace

Expected<std::vector<Clause>> read_scope_table(std::span<const std::byte> table, std::uint64_t base,
                                               const Method& method) {
  const ByteView bytes(table.data(), table.size());
  const auto count = bytes.at<std::uint32_t>(0);
  if (!count) return Failure(count.error());
  std::vector<Clause> clauses;
  for (std::uint64_t i = 0, at = sizeof *count; i < *count; ++i, at += sizeof(Scope)) {
    const auto scope = bytes.at<Scope>(at);
    if (!scope) return Failure(scope.error());
    const std::uint64_t size = method.end - method.begin, target = base + scope->target;
    const std::uint64_t begin = base + scope->begin - method.begin, end = base + scope->end - method.begin;
    if (begin > end || end > size) return fail(ErrorCode::kMalformed, "scope is outside of its method", at, i);
    if (scope->handler == 0) return fail(ErrorCode::kMalformed, "scope has no handler", at, i);
    Clause& clause = clauses.emplace_back();
    clause.begin = static_cast<std::uint32_t>(begin);
    clause.end = static_cast<std::uint32_t>(end);
    if (scope->target == 0) {
      clause.kind = ClauseKind::kFinally;
      clause.handler = base + scope->handler;
      continue;
    }
    if (target - method.begin >= size) return fail(ErrorCode::kMalformed, "scope goes on outside of its method", at, i);
    clause.kind = ClauseKind::kFilter;
    clause.filter = scope->handler == Clause::kAlways ? Clause::kAlways : base + scope->handler;
    clause.resume = target;
  }
  return clauses;
}

}  // namespace windlass::managed
