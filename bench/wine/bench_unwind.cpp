// Nanoseconds a frame, Windlass beside the system in the same process: the virtual unwind alone over few and many
// functions of system libraries (just behind their prologues, on a made-up stack), and walks of the own stack over few
// and many functions. Each figure is the best of several rounds, in which all take turns.
#include <windows.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "outcome.h"
#include "system_walk.h"
#include "walk/own/windows/modules.h"
#include "windlass/backtrace.h"

namespace windlass {
namespace {

constexpr unsigned kRounds = 15;
constexpr double kRoundSeconds = 0.01;

double now() {
  static const double frequency = [] {
    LARGE_INTEGER value;
    QueryPerformanceFrequency(&value);
    return static_cast<double>(value.QuadPart);
  }();
  LARGE_INTEGER value;
  QueryPerformanceCounter(&value);
  return static_cast<double>(value.QuadPart) / frequency;
}

struct Contender {
  std::string name;
  std::function<std::uint64_t()> run;  // returns how many frames it did
};

// The first is what the others are compared with.
void race(const std::string& what, const std::vector<Contender>& contenders) {
  std::vector<double> best(contenders.size(), 1e9);
  for (unsigned round = 0; round < kRounds; ++round)
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      std::uint64_t frames = 0;
      const double start = now();
      double end = start;
      while ((end = now()) - start < kRoundSeconds) frames += contenders[i].run();
      best[i] = std::min(best[i], (end - start) * 1e9 / static_cast<double>(frames));
    }
  for (std::size_t i = 0; i < contenders.size(); ++i)
    fmt::print("{:<34} {:<44} {:>8.1f} {:>7.2f}\n", what, contenders[i].name, best[i], best[i] / best[0]);
  std::fflush(stdout);
}

// ---- the virtual unwind alone ----

struct State {
  CONTEXT context;
  Registers registers;
  RUNTIME_FUNCTION function;
  const walk::OwnImage* image;
};

// Just behind the prologue of every function that has one, of the libraries that are loaded anyway.
std::vector<State> states(const test::MadeUpStack& stack, std::size_t wanted) {
  std::vector<State> all;
  for (const char* name : {"kernelbase.dll", "ntdll.dll", "msvcrt.dll", "kernel32.dll"}) {
    const walk::OwnImage* image = walk::find_own_image(reinterpret_cast<std::uint64_t>(GetModuleHandleA(name)));
    if (image == nullptr) continue;
    const winx64::Functions& functions = image->functions();
    for (std::size_t i = 0; i < functions.size(); ++i) {
      const winx64::RuntimeFunction entry = functions.stored(i);
      const auto info = winx64::info_of(functions, entry);
      if (!info || info->slot_count == 0 || info->chained || entry.end - entry.begin <= info->prolog_size) continue;
      State state{test::made_up_context(stack, all.size()), {}, {entry.begin, entry.end, {entry.info}}, image};
      state.context.Rip = image->base() + entry.begin + info->prolog_size;
      state.registers = test::registers_of(state.context);
      winx64::Unwound unwound;
      if (winx64::virtual_unwind(functions, image->base(), stack, state.registers, unwound)) all.push_back(state);
    }
  }
  std::vector<State> some;
  for (std::size_t i = 0; i < wanted && i < all.size(); ++i)
    some.push_back(all[i * (all.size() / std::min(wanted, all.size()))]);
  return some;
}

// What an unwind changes of a context, put back.
void restore(CONTEXT& to, const CONTEXT& from) {
  to.Rip = from.Rip;
  std::copy_n(&from.Rax, 16, &to.Rax);
}

void race_unwinds(const test::MadeUpStack& stack, std::size_t wanted) {
  std::vector<State> all = states(stack, wanted);
  std::vector<CONTEXT> contexts;
  for (const State& state : all) contexts.push_back(state.context);
  const auto system = [&](bool look_up) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      State& state = all[i];
      CONTEXT& context = contexts[i];
      restore(context, state.context);
      void* data = nullptr;
      DWORD64 frame = 0, base = state.image->base();
      RUNTIME_FUNCTION* function = look_up ? RtlLookupFunctionEntry(context.Rip, &base, nullptr) : &state.function;
      RtlVirtualUnwind(UNW_FLAG_NHANDLER, base, context.Rip, function, &context, &data, &frame, nullptr);
    }
    return all.size();
  };
  const auto ours = [&](bool look_up) {
    winx64::Unwound unwound;
    for (const State& state : all) {
      const walk::OwnImage* image = look_up ? walk::find_own_image(state.registers.pc().value()) : state.image;
      (void)winx64::virtual_unwind(image->functions(), image->base(), stack, state.registers, unwound);
    }
    return all.size();
  };
  race(fmt::format("unwind, {} functions", all.size()),
       {{"RtlVirtualUnwind, the function given", [&] { return system(false); }},
        {"winx64::virtual_unwind, the image given", [&] { return ours(false); }},
        {"RtlLookupFunctionEntry + RtlVirtualUnwind", [&] { return system(true); }},
        {"image found + winx64::virtual_unwind", [&] { return ours(true); }}});
}

// ---- walks of the own stack ----

using Step = std::uint64_t (*)(unsigned depth, const std::function<void()>& at_end);
extern Step steps[512];  // step<0> to step<511>
unsigned distinct = 1;

template <unsigned N>
[[gnu::noinline]] std::uint64_t step(unsigned depth, const std::function<void()>& at_end) {
  volatile char space[16 + N % 7 * 24];
  space[0] = static_cast<char>(N);
  if (depth == 0)
    at_end();
  else
    return steps[(depth * 7) % distinct](depth - 1, at_end) + static_cast<std::uint64_t>(space[0]);
  return N;
}

template <unsigned... N>
constexpr void fill(std::integer_sequence<unsigned, N...>) {
  ((steps[N] = &step<N>), ...);
}
Step steps[512];

void race_walks(unsigned depth, unsigned functions) {
  distinct = functions;
  steps[0](depth, [&] {
    static std::uint64_t pcs[2048];
    static void* system_pcs[2048];
    std::uint64_t sum = 0;
    const std::string what = fmt::format("walk, depth {}, {} functions", depth, functions);
    race(what + ", pcs", {{"RtlCaptureStackBackTrace",
                           [&] { return std::uint64_t{RtlCaptureStackBackTrace(0, 2048, system_pcs, nullptr)}; }},
                          {"windlass::backtrace", [&] { return std::uint64_t{backtrace(pcs, 2048)}; }}});
    race(what + ", all", {{"RtlLookupFunctionEntry + RtlVirtualUnwind",
                           [&] {
                             CONTEXT context;
                             RtlCaptureContext(&context);
                             return test::count_frames(context);
                           }},
                          {"windlass::StackWalker", [&] {
                             std::uint64_t frames = 0;
                             for (const Frame& frame : StackWalker(own_process(), capture_registers())) {
                               sum += frame.sp();
                               ++frames;
                             }
                             return frames;
                           }}});
  });
}

}  // namespace
}  // namespace windlass

int main() {
  using namespace windlass;
  fill(std::make_integer_sequence<unsigned, 512>());
  const test::MadeUpStack stack;
  if (!stack.ok()) return 3;
  fmt::print("{:<34} {:<44} {:>8} {:>7}\n", "what", "who", "ns/frame", "ratio");
  for (const std::size_t functions : {16, 512, 8192}) race_unwinds(stack, functions);
  race_walks(64, 32);
  race_walks(512, 512);
}
