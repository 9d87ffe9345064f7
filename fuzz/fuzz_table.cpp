// Input: a small program of functions and rows. The table built of them must answer as the slow reference does, at and
// around every address the program names.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>

#include "check.h"
#include "support/table_reference.h"

namespace {

using namespace windlass;
using namespace windlass::table;

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
  [[nodiscard]] bool empty() const { return at_ == end_; }
  std::uint64_t take(int bytes) {
    std::uint64_t value = 0;
    for (; bytes > 0; --bytes) value = value << 8 | (at_ != end_ ? *at_++ : 0);
    return value;
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

constexpr std::size_t kMaxFunctions = 48;  // the reference is quadratic
constexpr std::size_t kMaxRows = 256;

TraceRule some_rule(std::uint64_t seed) {
  TraceRule rule{};
  rule.cfa_kind = seed % 5 == 0 ? WL_CFA_NONE : WL_CFA_REG;
  rule.cfa_offset = static_cast<std::int32_t>(seed);
  return rule;
}

ReferenceTable read_program(Bytes& input) {
  ReferenceTable reference;
  std::uint64_t base = input.take(2) << 8;
  const std::uint64_t ranges = input.take(1) % 4;
  for (std::uint64_t i = 0; i < ranges; ++i) {
    const std::uint64_t begin = base + input.take(2);
    reference.executable.push_back({begin, begin + input.take(2)});
  }
  std::size_t rows = 0;
  while (!input.empty() && reference.functions.size() < kMaxFunctions && rows < kMaxRows) {
    const std::uint64_t flags = input.take(1);
    ReferenceTable::Function function;
    function.fallback = (flags & 1) != 0;
    if ((flags & 2) != 0) base += input.take(1) << 12;
    function.begin = base + input.take(2);
    function.end = function.begin + (flags & 4 ? input.take(3) : input.take(1));
    std::uint64_t at = function.begin + (flags & 8 ? input.take(1) : 0);
    for (std::uint64_t n = flags >> 4; n > 0 && at < function.end; --n, ++rows) {
      function.rows[at] = some_rule(flags & 1 ? input.take(2) : input.take(1));
      at += input.take(flags & 4 ? 2 : 1);
    }
    reference.functions.push_back(std::move(function));
  }
  return reference;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes input(data, size);
  const ReferenceTable reference = read_program(input);
  const auto table = reference.build();
  if (!table) {
    FUZZ_CHECK(table.error().code == ErrorCode::kLimit);
    return 0;
  }
  std::set<std::uint64_t> addresses{0, ~0ull};
  const auto around = [&](std::uint64_t address) {
    for (const std::uint64_t near : {address - 16, address - 1, address, address + 1, address + 15})
      addresses.insert(near);
  };
  for (const AddressRange& range : reference.executable) around(range.begin), around(range.end);
  for (const auto& function : reference.functions) {
    around(function.begin);
    around(function.end);
    for (const auto& [begin, rule] : function.rows) around(begin);
  }
  for (const std::uint64_t address : addresses) FUZZ_CHECK(same(table->find(address), reference.find(address)));
  // What a page says of its own size must be what was written.
  for (const std::uint32_t entry : table->directory()) {
    if (entry == 0) continue;
    const PageShape shape = UnwindTable::shape(table->page(entry));
    FUZZ_CHECK(entry * std::uint64_t{8} + shape.bytes() <= table->pages().size_bytes());
  }
  return 0;
}
