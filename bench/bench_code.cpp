// Code ranges: what a look-up, a walk, and adding and retiring one cost, by how many there are.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <vector>

#include "walk/code_ranges.h"
#include "windlass/backtrace.h"

using namespace windlass;

namespace {

// Nanoseconds of one call, the best of several runs.
template <typename Call>
double nanoseconds(std::size_t calls, Call&& call) {
  using Clock = std::chrono::steady_clock;
  double best = 1e18;
  for (int run = 0; run < 7; ++run) {
    const auto begin = Clock::now();
    for (std::size_t i = 0; i < calls; ++i) call(i);
    best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - begin).count());
  }
  return best / static_cast<double>(calls);
}

constexpr std::uint64_t kFirst = 0x10'0000'0000, kStride = 0x100;

CodeRange range(std::uint64_t number) {
  FrameRow row;
  row.begin = kFirst + number * kStride;
  row.end = row.begin + 0x80;
  return {.begin = row.begin, .end = row.begin + 0xc0, .rows = {row}};
}

[[gnu::noinline]] std::size_t walk_from(unsigned depth, std::uint64_t* pcs) {
  const std::size_t found = depth == 0 ? backtrace(pcs, 64) : walk_from(depth - 1, pcs);
  __asm__ volatile("");
  return found;
}

void measure(std::size_t count) {
  std::vector<CodeRangeId> ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(*add_own_code(range(i)));
  std::mt19937 random(1);
  std::vector<std::uint64_t> addresses(4096);
  for (auto& address : addresses) address = kFirst + random() % std::max<std::size_t>(count, 1) * kStride + 0x40;
  std::uint64_t sum = 0;
  const double one = nanoseconds(100'000, [&](std::size_t i) {
    sum += reinterpret_cast<std::uintptr_t>(walk::CodeRanges::View(walk::own_code_ranges()).find(addresses[i % 4096]));
  });
  const double in_walk = [&] {
    const walk::CodeRanges::View view(walk::own_code_ranges());
    return nanoseconds(100'000,
                       [&](std::size_t i) { sum += reinterpret_cast<std::uintptr_t>(view.find(addresses[i % 4096])); });
  }();
  std::uint64_t pcs[64];
  const double walk = nanoseconds(20'000, [&](std::size_t) { sum += walk_from(20, pcs); });
  const double change = nanoseconds(2'000, [&](std::size_t i) {
    const auto id = add_own_code(range(count + i % 64));
    if (id) (void)retire_own_code(*id);
  });
  fmt::print(
      "{:>7} ranges: look-up {:6.1f} ns, {:6.1f} ns within a walk; backtrace of 20 frames {:6.1f} ns; "
      "add and retire {:7.0f} ns{}\n",
      count, one, in_walk, walk, change, sum == 1 ? " " : "");
  for (const CodeRangeId id : ids) (void)retire_own_code(id);
}

}  // namespace

int main() {
  for (const std::size_t count : {0u, 100u, 10'000u}) measure(count);
}
