// Walking the own stack: nanoseconds a frame, beside the peers, on the same stacks.
//   warm    the same walk again and again
//   first   the first walk of a process (a fresh child each time)
//   new     a walk over functions no walk has met, after one over others (a fresh child each time)
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "walk_changing.h"
#include "walk_frames.h"
#include "walk_peers.h"
#include "windlass/backtrace.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMax = 1024;

double since(Clock::time_point start) { return std::chrono::duration<double, std::nano>(Clock::now() - start).count(); }

struct Result {
  double ns = 0;           // a walk
  std::size_t frames = 0;  // of a walk
  bool right = false;      // the frames of the chain are all there
};

struct Measurement {
  Walker walk;
  unsigned depth;
  int rounds;
  Result result;
};

// What all walkers agree about: the return addresses above the leaf, as the frame pointers have them.
[[gnu::noinline]] bool is_right(Walker walk, unsigned depth, std::size_t& frames) {
  static thread_local std::uint64_t expected[kMax], found[kMax];
  const std::size_t reference = reference_walk(expected, kMax);
  frames = walk(found, kMax);
  // [0] is within this function, at another call.
  return reference > depth && frames > depth && std::memcmp(expected + 1, found + 1, depth * sizeof *found) == 0;
}

[[gnu::noinline]] void measure(void* context) {
  auto& m = *static_cast<Measurement*>(context);
  static thread_local std::uint64_t pcs[kMax];
  std::vector<double> times;
  for (int round = 0; round < m.rounds; ++round) {
    const int repeat = m.rounds == 1 ? 1 : 20;
    const auto start = Clock::now();
    for (int i = 0; i < repeat; ++i) m.walk(pcs, kMax);
    times.push_back(since(start) / repeat);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  m.result.ns = times[times.size() / 2];
  m.result.right = is_right(m.walk, m.depth, m.result.frames);
}

Result run(Walker walk, unsigned depth, unsigned distinct, int rounds, unsigned first = 0) {
  Measurement m{walk, depth, rounds, {}};
  walk_frames::Chain chain{depth, distinct, first, measure, &m};
  walk_frames::run(chain);
  return m.result;
}

// The median of `times` fresh processes.
template <typename Body>
Result in_children(int times, Body&& body) {
  auto* shared =
      static_cast<Result*>(mmap(nullptr, sizeof(Result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<Result> results;
  for (int i = 0; i < times; ++i) {
    *shared = {};
    const pid_t child = fork();
    if (child == 0) {
      *shared = body();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    results.push_back(*shared);
  }
  std::sort(results.begin(), results.end(), [](const Result& a, const Result& b) { return a.ns < b.ns; });
  munmap(shared, sizeof(Result));
  return results[results.size() / 2];
}

struct Stack {
  unsigned depth, distinct;
};
constexpr Stack kStacks[] = {{16, 32}, {64, 32}, {512, 32}, {16, 512}, {64, 512}, {512, 512}};

void print(const char* title, const std::vector<Peer>& peers, const auto& measure_one) {
  fmt::print("{}\n{:28}", title, "ns a frame, depth/functions");
  for (const Stack& stack : kStacks) fmt::print("{:>12}", fmt::format("{}/{}", stack.depth, stack.distinct));
  fmt::print("\n");
  for (const Peer& peer : peers) {
    fmt::print("{:28}", peer.name);
    for (const Stack& stack : kStacks) {
      const Result result = measure_one(peer, stack);
      const double frames = static_cast<double>(std::max<std::size_t>(result.frames, 1));
      fmt::print("{:>12}", fmt::format("{:.1f}{}", result.ns / frames, result.right ? "" : " LOST"));
      std::fflush(stdout);
    }
    fmt::print("\n");
  }
  fmt::print("\n");
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  const int rounds = quick ? 5 : 51;
  const int children = quick ? 5 : 25;
  const auto peers = walk_peers();

  print("First walk of a process", peers, [&](const Peer& peer, const Stack& stack) {
    return in_children(children, [&] { return run(peer.walk, stack.depth, stack.distinct, 1); });
  });
  const auto after_others = [&](const Peer& peer, const Stack& stack) {
    return in_children(children, [&] {
      (void)run(peer.walk, 64, 64, 3, walk_frames::kFunctions - 64);
      return run(peer.walk, stack.depth, std::min(stack.distinct, walk_frames::kFunctions - 64), 1);
    });
  };
  print("New functions, after a walk over others", peers, after_others);
  {
    const std::vector<Peer> prepared(peers.begin() + 1, peers.begin() + 2);
    print("The same after prepare()", prepared, [&](const Peer& peer, const Stack& stack) {
      return in_children(children, [&] {
        windlass::prepare();
        (void)run(peer.walk, 64, 64, 3, walk_frames::kFunctions - 64);
        return run(peer.walk, stack.depth, std::min(stack.distinct, walk_frames::kFunctions - 64), 1);
      });
    });
  }
  print("Warm", peers,
        [&](const Peer& peer, const Stack& stack) { return run(peer.walk, stack.depth, stack.distinct, rounds); });
  print_changing_stacks(peers, rounds);
  std::vector<Peer> threaded = peers;
  std::erase_if(threaded, [](const Peer& peer) { return peer.name.starts_with("libdw"); });  // one thread only
  print("Warm, two threads at a time", threaded, [&](const Peer& peer, const Stack& stack) {
    Result one, other;
    std::thread thread([&] { other = run(peer.walk, stack.depth, stack.distinct, rounds); });
    one = run(peer.walk, stack.depth, stack.distinct, rounds);
    thread.join();
    one.ns = (one.ns + other.ns * static_cast<double>(one.frames) /
                           static_cast<double>(std::max<std::size_t>(other.frames, 1))) /
             2;
    one.right = one.right && other.right;
    return one;
  });
}
