#include "runtimes/beam/code_map.h"

#include "runtimes/memory_reader.h"

namespace windlass::runtimes::beam {
namespace {

struct Ranges {
  std::uint64_t modules, count;
};
struct Range {
  std::uint64_t begin, end;
};

constexpr std::uint32_t kCodeIndexes = 3;  // ERTS_NUM_CODE_IX

}  // namespace

// The module's header, where its range begins.
Expected<std::uint64_t> CodeMap::module_at(const Memory& memory, std::uint64_t pc) const {
  const auto index = read_value<std::uint32_t>(memory, layout_.code_index);
  const auto ranges = index && *index < kCodeIndexes
                          ? read_value<Ranges>(memory, layout_.ranges + std::uint64_t{*index} * Layout::kRangesSize)
                          : std::nullopt;
  if (!ranges) return fail(ErrorCode::kUnreadable, "the modules' ranges cannot be read", layout_.ranges);
  if (ranges->count > kMaxModules) return fail(ErrorCode::kLimit, "too many modules", layout_.ranges, ranges->count);
  for (std::uint64_t low = 0, high = ranges->count; low < high;) {
    const std::uint64_t middle = low + (high - low) / 2;
    const auto range = read_value<Range>(memory, ranges->modules + middle * sizeof(Range));
    if (!range) return fail(ErrorCode::kUnreadable, "the modules' ranges cannot be read", ranges->modules);
    if (pc < range->begin)
      high = middle;
    else if (pc >= range->end)
      low = middle + 1;
    else
      return range->begin;
  }
  return fail(ErrorCode::kNotFound, "no module contains the address", pc);
}

Expected<Function> CodeMap::find(const Memory& memory, std::uint64_t pc) const {
  const auto header = module_at(memory, pc);
  if (!header) return Failure(header.error());
  const auto count = read_value<std::uint64_t>(memory, *header);
  if (!count) return fail(ErrorCode::kUnreadable, "a module's functions cannot be read", *header);
  if (*count > kMaxFunctions) return fail(ErrorCode::kLimit, "too many functions in a module", *header, *count);
  const std::uint64_t functions = *header + layout_.functions;
  for (std::uint64_t low = 0, high = *count; low < high;) {
    const std::uint64_t middle = low + (high - low) / 2;
    const auto bounds = read_value<Range>(memory, functions + middle * 8);  // and where the next one begins
    if (!bounds) return fail(ErrorCode::kUnreadable, "a module's functions cannot be read", functions);
    if (pc < bounds->begin) {
      high = middle;
    } else if (pc >= bounds->end) {
      low = middle + 1;
    } else {
      if (bounds->end - bounds->begin > kMaxCode)
        return fail(ErrorCode::kLimit, "a function's code is too long", bounds->begin, bounds->end - bounds->begin);
      const auto module = read_value<std::uint64_t>(memory, bounds->begin + Layout::kInfoModule);
      const auto name = read_value<std::uint64_t>(memory, bounds->begin + Layout::kInfoFunction);
      const auto arity = read_value<std::uint64_t>(memory, bounds->begin + Layout::kInfoArity);
      if (!module || !name || !arity)
        return fail(ErrorCode::kUnreadable, "a function's name cannot be read", bounds->begin);
      return Function{bounds->begin, bounds->end, *module, *name, *arity, middle + 1 == *count};
    }
  }
  return fail(ErrorCode::kNotFound, "no function contains the address", pc);
}

}  // namespace windlass::runtimes::beam
