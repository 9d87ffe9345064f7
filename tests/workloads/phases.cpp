// A program whose time is known: phase_one() is busy, then phase_rest() sleeps, then phase_two() is busy.
//   phases MILLISECONDS
// Prints the times of CLOCK_REALTIME in ns at which each phase began, and at which the last one ended.
#include <time.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

std::int64_t now() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
}

std::int64_t cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
}

std::int64_t length;  // of a phase

}  // namespace

// Not static, not inlined, no tail calls: each is a frame of its own.
#define PHASE extern "C" __attribute__((noinline))

PHASE void be_busy() {
  // On a machine that hardly lets it run, the phase is longer, so that there is something to sample.
  for (const std::int64_t end = now() + length, least = cpu_time() + length / 10; now() < end || cpu_time() < least;)
    continue;
  asm volatile("" ::: "memory");
}
PHASE void phase_one() {
  be_busy();
  asm volatile("" ::: "memory");
}
PHASE void phase_rest() {
  const timespec time{length / 1'000'000'000, length % 1'000'000'000};
  nanosleep(&time, nullptr);
  asm volatile("" ::: "memory");
}
PHASE void phase_two() {
  be_busy();
  asm volatile("" ::: "memory");
}

int main(int argc, char** argv) {
  length = (argc > 1 ? std::atoll(argv[1]) : 1000) * 1'000'000;
  std::int64_t times[4] = {now()};
  phase_one();
  times[1] = now();
  phase_rest();
  times[2] = now();
  phase_two();
  times[3] = now();
  for (const std::int64_t time : times) std::printf("%" PRId64 "\n", time);
  return 0;
}
