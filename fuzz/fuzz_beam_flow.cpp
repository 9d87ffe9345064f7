// Input: a function of BeamAsm's, as it stands in memory. Whatever it says, reading its code ends, and the frames found
// are ascending and such as can be.
#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "check.h"
#include "runtimes/beam/code_flow.h"

namespace {

using namespace windlass::runtimes::beam;

constexpr std::uint64_t kAt = 0x7f00'0000'0000;
constexpr std::int32_t kMostDepth = 1 << 16;

void check(const FrameState& state) {
  FUZZ_CHECK(state.depth >= 0 && state.depth <= kMostDepth && state.depth % 8 == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span code(reinterpret_cast<const std::byte*>(data), std::min<std::size_t>(size, 4096));
  std::vector<std::uint32_t> returns;
  const auto stretches = flow(code, kAt, returns);
  for (std::size_t i = 0; i < stretches.size(); ++i) {
    FUZZ_CHECK(stretches[i].begin < code.size() &&
               (i == 0 ? stretches[i].begin == 0 : stretches[i - 1].begin < stretches[i].begin));
    FUZZ_CHECK(stretches[i].state.depth >= 0 && stretches[i].state.depth <= kMostDepth);
  }
  FUZZ_CHECK(std::ranges::is_sorted(returns));
  const auto read = [&](std::uint64_t from, void* to, std::size_t count) {
    if (from < kAt || from - kAt > code.size() || count > code.size() - (from - kAt)) return false;
    std::memcpy(to, code.data() + (from - kAt), count);
    return true;
  };
  const auto leads = [](std::uint64_t target) {
    return target >= kAt && target < kAt + 4096 ? Leads::kOn : Leads::kToFunction;
  };
  check(follow(kAt, read, leads, [](std::uint64_t) { return FrameState(); }));
  return 0;
}
