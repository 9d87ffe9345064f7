#include "walk_changing.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <utility>

#include "windlass/backtrace.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMax = 256;

double since(Clock::time_point start) { return std::chrono::duration<double, std::nano>(Clock::now() - start).count(); }

// What a walk of such a stack waits for at least: the return address, then what is known of it. A table of the return
// addresses, found by the same hash as the walks', that is always right: nothing is looked up that is not there,
// nothing is checked but where the stack ends.
class Chase {
 public:
  void learn() {
    std::uint64_t pc = 0;
    std::uint64_t sp = 0;
    for (const windlass::Frame& frame : windlass::StackWalker(windlass::own_process(), windlass::capture_registers())) {
      if (pc != 0) steps_[place_of(pc)] = {pc, frame.sp() - 8 - sp};
      pc = frame.pc().value();
      sp = frame.sp();
    }
  }
  [[nodiscard]] std::size_t walk(std::uint64_t pc, std::uint64_t sp, std::uint64_t* pcs) const {
    std::size_t count = 0;
    for (;;) {
      pcs[count++] = pc;
      const Step& step = steps_[place_of(pc)];
      if (step.pc != pc) return count;
      const auto* slot = reinterpret_cast<const std::uint64_t*>(sp + step.return_offset);
      pc = *slot;
      sp = reinterpret_cast<std::uint64_t>(slot + 1);
    }
  }

 private:
  struct Step {
    std::uint64_t pc, return_offset;
  };
  static std::size_t place_of(std::uint64_t pc) { return (pc ^ pc >> 7) % (1 << 16); }
  std::vector<Step> steps_{1 << 16};
};
Chase chase;

// Functions with frames of 32 sizes, each of which may call any.
struct Changing {
  Walker walk;  // null: the chase
  std::uint64_t random = 88172645463325252;
  double ns = 0;
  std::size_t frames = 0;

  unsigned next() {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return static_cast<unsigned>(random % 32);
  }
};

[[gnu::noinline]] void walk_changing(Changing& c) {
  static std::uint64_t pcs[kMax];
  const auto pc = reinterpret_cast<std::uint64_t>(__builtin_return_address(0));
  const auto sp = reinterpret_cast<std::uint64_t>(__builtin_dwarf_cfa());
  const auto start = Clock::now();
  c.frames += c.walk != nullptr ? c.walk(pcs, kMax) : chase.walk(pc, sp, pcs);
  c.ns += since(start);
}

using ChangingFrame = void (*)(Changing&, unsigned);
extern const std::array<ChangingFrame, 32> kChangingFrames;

template <unsigned N>
[[gnu::noinline]] void changing_frame(Changing& c, unsigned left) {
  volatile char pad[16 + N * 8];
  pad[N] = 1;
  if (left == 0)
    walk_changing(c);
  else
    kChangingFrames[c.next()](c, left - 1);
  pad[0] = pad[N];
}
template <std::size_t... N>
constexpr std::array<ChangingFrame, 32> changing_frames(std::index_sequence<N...>) {
  return {changing_frame<N>...};
}
const std::array<ChangingFrame, 32> kChangingFrames = changing_frames(std::make_index_sequence<32>());

// Nanoseconds a frame: the least of the rounds, without the clock's own.
double changing(Walker walk, unsigned depth, int rounds) {
  double clock = 1e9;
  for (int i = 0; i < 100; ++i) {
    const auto start = Clock::now();
    for (int j = 0; j < 1000; ++j) (void)Clock::now();
    clock = std::min(clock, since(start) / 1000);
  }
  double least = 1e9;
  for (int round = 0; round < rounds; ++round) {
    constexpr int kWalks = 500;
    Changing c{walk};
    for (int i = 0; i < kWalks; ++i) kChangingFrames[c.next()](c, depth);
    least = std::min(least, (c.ns - clock * kWalks) / static_cast<double>(c.frames));
  }
  return least;
}

}  // namespace

void print_changing_stacks(const std::vector<Peer>& peers, int rounds) {
  constexpr unsigned kDepths[] = {16, 64};
  fmt::print("A stack that changes with every walk\n{:28}", "ns a frame, depth");
  for (const unsigned depth : kDepths) fmt::print("{:>12}", depth);
  const auto row = [&](const std::string& name, Walker walk) {
    fmt::print("\n{:28}", name);
    for (const unsigned depth : kDepths) fmt::print("{:>12.1f}", changing(walk, depth, rounds));
    std::fflush(stdout);
  };
  (void)changing([](std::uint64_t*, std::size_t) -> std::size_t { return chase.learn(), 1; }, 64, 3);
  row("a chain of loads (the floor)", nullptr);
  for (const Peer& peer : peers)
    if (!peer.name.starts_with("frame pointers")) row(peer.name, peer.walk);  // these functions have none
  fmt::print("\n\n");
}
