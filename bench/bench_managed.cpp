// Managed stacks, beside what there is for native ones: a frame of a walk beside frame pointers, an exception beside
// C++'s on libgcc, and how long it takes to stop threads. Nanoseconds; the lowest of several rounds.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "support/code_by_hand.h"
#include "windlass/managed/gc_roots.h"
#include "windlass/managed/suspension.h"

WINDLASS_MANAGED_METHOD(bench_outer)
WINDLASS_MANAGED_METHOD(bench_method)
WINDLASS_FUNCLET(bench_catch, run_bench_catch)
WINDLASS_FUNCLET(bench_finally, run_bench_finally)

extern "C" std::uint64_t run_bench_catch(std::uint64_t, std::uint64_t) {
  return reinterpret_cast<std::uint64_t>(bench_outer_resume);
}
extern "C" std::uint64_t run_bench_finally(std::uint64_t, std::uint64_t) { return 0; }

namespace {

using namespace windlass;
using namespace windlass::managed;

double now() {
  timespec time;
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

// Of one of `count` calls of `what`. Short rounds, and many of them, find a moment when nobody else runs.
template <typename What>
double fastest(unsigned count, const What& what, unsigned rounds = 15) {
  double best = 1e18;
  for (unsigned round = 0; round < rounds; ++round) {
    const double begin = now();
    for (unsigned i = 0; i < count; ++i) what();
    best = std::min(best, (now() - begin) / count);
  }
  return best;
}

class CatchesAll : public Personality {
 public:
  bool catches(const CrawlFrame&, const Clause&, const Thrown&) override { return true; }
};

HandRuntime runtime;
ThrowingThread thread;
CatchesAll personality;
FrameList frames;

// bench_outer, `depth` - 1 bench_methods, and `end`.
class Chain {
 public:
  Chain(unsigned depth, void* end) : calls_(depth) {
    for (unsigned i = 0; i < depth; ++i) {
      const bool last = i + 1 == depth;
      calls_[i] = {last ? end : reinterpret_cast<void*>(&bench_method), last ? nullptr : &calls_[i + 1]};
    }
  }
  void run() const { bench_outer(calls_.data()); }

 private:
  std::vector<Call> calls_;
};

// ---- walks --------------------------------------------------------------------------------------------------------

constexpr unsigned kDepth = 100;
double walk_ns[5];
std::uint64_t walked;

// What a walk costs at least that has a frame pointer in every frame: two loads, and the checks that keep it on the
// stack. `each` is given the return addresses.
template <typename Each>
void by_frame_pointers(const void* frame, const Each& each) {
  auto at = reinterpret_cast<std::uint64_t>(frame);
  for (unsigned i = 0; i < kDepth; ++i) {
    std::uint64_t record[2];
    std::memcpy(record, reinterpret_cast<const void*>(at), sizeof record);
    each(record[1]);
    if (record[0] <= at || record[0] % 16 != 0) return;
    at = record[0];
  }
}

// As many native frames with frame pointers as the chain has managed ones.
[[gnu::noinline, gnu::optimize("no-omit-frame-pointer")]] void measure_frame_pointers(unsigned depth) {
  if (depth > 1) {
    measure_frame_pointers(depth - 1);
    asm volatile("");
    return;
  }
  const void* frame = __builtin_frame_address(0);
  walk_ns[3] = fastest(
                   50, [&] { by_frame_pointers(frame, [](std::uint64_t pc) { walked += pc & 1; }); }, 400) /
               kDepth;
  // Beside it what any walk of managed code asks of each address: which method is it?
  const auto find = [](std::uint64_t pc) { walked += runtime.find(pc) != nullptr ? 2 : 0; };
  walk_ns[4] = fastest(
                   50, [&] { by_frame_pointers(frame, find); }, 400) /
               kDepth;
}

// Those of the innermost managed frame below native ones.
Registers innermost_managed(const Registers& native) {
  StackWalker walker(own_process(), native);
  while (runtime.find(walker.frame().pc().lookup()) == nullptr && walker.step()) {}
  return walker.frame().registers;
}

void measure_walks(const void*) {
  const Registers here = innermost_managed(capture_registers());
  const auto managed = [&](WalkFlags flags) {
    return fastest(
               50,
               [&] {
                 ManagedWalker walk(thread.walk, here, flags | kFunctionsOnly);
                 while (walk.next()) walked += walk.frame().cfa & 1;
               },
               400) /
           kDepth;
  };
  walk_ns[0] = managed(0);
  walk_ns[1] = managed(kLightUnwind);
  walk_ns[2] = fastest(
                   50,
                   [&] {
                     StackWalker walk(own_process(), here);
                     for (unsigned i = 0; i < kDepth && walk.step(); ++i) walked += walk.frame().sp() & 1;
                   },
                   400) /
               kDepth;
}

// ---- roots --------------------------------------------------------------------------------------------------------

constexpr unsigned kScanned = 1000;
double scan_ns;
std::uint64_t roots_seen;

// Two roots a frame: a register that its callee has saved, and a slot.
std::vector<std::byte> map_of_method(const Method& method) {
  constexpr bool kX86 = kOwnArchitecture == Architecture::kX86_64;
  constexpr std::uint32_t kCall = kX86 ? 2 : 4;
  constexpr RegisterNumber kKept = kX86 ? 3 : 19;
  const auto site =
      static_cast<std::uint32_t>(reinterpret_cast<std::uint64_t>(bench_method_try) - method.begin) + kCall;
  StackMap map{.code_size = static_cast<std::uint32_t>(method.end - method.begin),
               .sites = {{.offset = site, .live = {{.place = in_register(kKept)}, {.place = at_sp(kX86 ? 0 : 24)}}}}};
  auto encoded = encode(map);
  if (!encoded) fmt::print("the stack map: {}\n", encoded.error().text());
  return encoded ? std::move(*encoded) : std::vector<std::byte>();
}

void measure_scan(const void*) {
  const Registers here = innermost_managed(capture_registers());
  const auto scan = [&] {
    for (ManagedWalker walk(thread.walk, here, kFunctionsOnly); walk.next();)
      (void)each_root(walk.frame(), own_process().memory(), [](const Root& root) { roots_seen += root.address != 0; });
  };
  scan_ns = fastest(10, scan, 300);
  roots_seen = 0;
  scan();
}

// ---- exceptions ---------------------------------------------------------------------------------------------------

void throw_managed(const void*) { raise(thread, 1); }

[[gnu::noinline]] void throw_cpp(unsigned depth) {
  if (depth == 0) throw 1;
  throw_cpp(depth - 1);
  asm volatile("");
}
struct Cleanup {
  ~Cleanup() { asm volatile("" ::: "memory"); }
};
[[gnu::noinline]] void throw_cpp_through_destructors(unsigned depth) {
  const Cleanup cleanup;
  if (depth == 0) throw 1;
  throw_cpp_through_destructors(depth - 1);
  asm volatile("");
}
template <typename Throw>
double cpp_exception(const Throw& thrower, unsigned depth) {
  return fastest(2000, [&] {
    try {
      thrower(depth);
    } catch (int) {}
  });
}

void exceptions(Method& method) {
  const auto offset = [](const char* at, const void* of) {
    return static_cast<std::uint32_t>(at - static_cast<const char*>(of));
  };
  const std::uint32_t at = offset(bench_method_try, reinterpret_cast<const void*>(&bench_method));
  const Clause finally{.kind = ClauseKind::kFinally,
                       .begin = at,
                       .end = at + 8,
                       .handler = reinterpret_cast<std::uint64_t>(bench_finally)};
  fmt::print("{:>7} {:>22} {:>14} {:>22} {:>22}\n", "frames", "windlass, try/finally", "windlass",
             "C++ with destructors", "C++");
  for (const unsigned depth : {1u, 10u, 50u}) {
    const Chain chain(depth, reinterpret_cast<void*>(&throw_managed));
    method.clauses = std::span(&finally, 1);
    const double with = fastest(2000, [&] { chain.run(); });
    method.clauses = {};
    const double without = fastest(2000, [&] { chain.run(); });
    fmt::print("{:>7} {:>22.0f} {:>14.0f} {:>22.0f} {:>22.0f}\n", depth, with, without,
               cpp_exception(throw_cpp_through_destructors, depth), cpp_exception(throw_cpp, depth));
  }
}

// ---- suspension ---------------------------------------------------------------------------------------------------

struct Everywhere : SafePoints {
  bool is_safe_point(const Method&, std::uint64_t) const override { return true; }
};

std::atomic<unsigned> answers = 0;

// Some 5 us of a helper that managed code calls.
void compute(const void*) {
  for (unsigned i = 0; i < 5000; ++i) asm volatile("" ::: "memory");
}

// All in managed code nearly always: each has to get its signal, and to come to a safe point or to return.
void suspension(unsigned count) {
  const Everywhere points;
  Suspender suspender(own_process(), runtime, points, SIGRTMIN + 3);
  const Chain chain(5, reinterpret_cast<void*>(&compute));
  std::atomic<bool> end = false;
  std::atomic<unsigned> attached = 0;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i)
    threads.emplace_back([&] {
      MutatorThread mutator;
      suspender.attach(mutator);
      ++attached;
      while (!end) {
        suspender.leave_native(mutator);
        chain.run();
        suspender.enter_native(mutator);
      }
      suspender.detach(mutator);
    });
  while (attached < count) std::this_thread::yield();
  const auto median = [](const auto& what) {
    std::vector<double> times;
    for (int i = 0; i < 51; ++i) {
      const double begin = now();
      what();
      times.push_back(now() - begin);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    std::ranges::sort(times);
    return times[25] / 1000;
  };
  const double stopped = median([&] { const Stopped all(suspender); });
  // What the system takes to have each of them run a handler that does nothing.
  std::signal(SIGUSR2, [](int) { ++answers; });
  const double bare = median([&] {
    answers = 0;
    for (std::thread& one : threads) ::pthread_kill(one.native_handle(), SIGUSR2);
    while (answers < threads.size()) std::this_thread::yield();
  });
  end = true;
  for (std::thread& one : threads) one.join();
  fmt::print(
      "{} computing threads stopped and resumed: median {:.0f} us; a signal to each, and its answer: {:.0f} us\n",
      count, stopped, bare);
}

}  // namespace

// bench_managed [walk]: walks and scans alone.
int main(int argc, char**) {
  const auto method = [](std::uint64_t id, const void* begin, const void* end) -> Method& {
    return runtime.add(id, begin, end);
  };
  Method& outer = method(1, reinterpret_cast<const void*>(&bench_outer), bench_outer_end);
  Method& inner = method(2, reinterpret_cast<const void*>(&bench_method), bench_method_end);
  runtime.add(11, bench_catch, bench_catch_end, Funclet::kCatch, &outer);
  runtime.add(21, bench_finally, bench_finally_end, Funclet::kFinally, &inner);
  const auto at = static_cast<std::uint32_t>(bench_outer_try - reinterpret_cast<const char*>(&bench_outer));
  const Clause handler{
      .kind = ClauseKind::kCatch, .begin = at, .end = at + 8, .handler = reinterpret_cast<std::uint64_t>(bench_catch)};
  outer.clauses = std::span(&handler, 1);
  thread.walk = {.space = &own_process(), .runtime = &runtime, .own_list = &frames};
  thread.personality = &personality;

  Chain(kDepth, reinterpret_cast<void*>(&measure_walks)).run();
  fmt::print("a managed frame, ns, of {}: {:.1f}; light {:.1f}; the same frames by StackWalker {:.1f}\n", kDepth,
             walk_ns[0], walk_ns[1], walk_ns[2]);
  measure_frame_pointers(kDepth);
  fmt::print(
      "a frame by frame pointers, ns: {:.2f}, the managed one {:.0f} times that; with the method looked up {:.2f}, "
      "{:.1f} times\n",
      walk_ns[3], walk_ns[0] / walk_ns[3], walk_ns[4], walk_ns[0] / walk_ns[4]);
  const std::vector<std::byte> roots = map_of_method(inner);
  inner.roots = roots;
  Chain(kScanned, reinterpret_cast<void*>(&measure_scan)).run();
  fmt::print("a scan of {} frames for {} roots: {:.0f} us, {:.1f} ns a frame\n", kScanned, roots_seen, scan_ns / 1000,
             scan_ns / kScanned);
  if (argc > 1) return 0;
  fmt::print("throw and catch, ns:\n");
  exceptions(inner);
  suspension(64);
  return walked == 1 ? 1 : 0;
}
