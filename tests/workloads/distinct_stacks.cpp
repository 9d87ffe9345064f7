// Computes at the bottom of stacks that differ from each other, for so many seconds of CPU time: distinct_stacks
// SECONDS It prints how many seconds it used.
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace {

constexpr int kDepth = 300, kWork = 2'000;

volatile unsigned long sum = 0;
unsigned long state = 88172645463325252UL;

unsigned long next_random() {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

double used_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

}  // namespace

extern "C" void left(int depth, unsigned long turns);
extern "C" void right(int depth, unsigned long turns);

static void deeper(int depth, unsigned long turns) {
  if (depth == 0)
    for (int i = 0; i < kWork; ++i) sum = sum + 1;
  else if ((turns & 1) != 0)
    left(depth - 1, depth % 60 == 0 ? next_random() : turns >> 1);
  else
    right(depth - 1, depth % 60 == 0 ? next_random() : turns >> 1);
}

extern "C" [[gnu::noinline]] void left(int depth, unsigned long turns) {
  deeper(depth, turns);
  sum = sum + 1;
}
extern "C" [[gnu::noinline]] void right(int depth, unsigned long turns) {
  deeper(depth, turns);
  sum = sum + 2;
}

int main(int count, char** arguments) {
  const double seconds = count > 1 ? std::atof(arguments[1]) : 1;
  while (used_seconds() < seconds) left(kDepth, next_random());
  std::printf("used %.3f seconds\n", used_seconds());
}
