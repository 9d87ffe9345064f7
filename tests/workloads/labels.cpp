// Threads with labels, set by windlass/labels.h.
//   labels MS
// Each of two threads spins MS of CPU time with route=/a, in that twice as long with route=/b and user=THREAD, and as
// long as the first without labels. Then a child process does so with route=/child, which it has from its parent. All
// print their CPU times: VALUE NS.
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "windlass/labels.h"

namespace {

std::int64_t cpu_clock() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

const windlass::LabelKey& route() {
  static const windlass::LabelKey key("route");
  return key;
}
const windlass::LabelKey& user() {
  static const windlass::LabelKey key("user");
  return key;
}

}  // namespace

__attribute__((noinline)) std::int64_t spin(std::int64_t ns) {
  const std::int64_t begin = cpu_clock();
  while (cpu_clock() < begin + ns) continue;
  return cpu_clock() - begin;
}

static void run(const char* name, std::int64_t ns) {
  {
    const windlass::ThreadLabel a(route(), "/a");
    std::int64_t in_a = spin(ns / 2);
    {
      const windlass::ThreadLabel b(route(), "/b"), of(user(), name);
      const std::int64_t in_b = spin(2 * ns);
      std::printf("/b %" PRId64 "\n%s %" PRId64 "\n", in_b, name, in_b);
    }
    in_a += spin(ns / 2);
    std::printf("/a %" PRId64 "\n", in_a);
  }
  std::printf("- %" PRId64 "\n", spin(ns));
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::int64_t ns = std::atoll(argv[1]) * 1'000'000;
  if (route().status() != WINDLASS_OK || user().status() != WINDLASS_OK) return 1;
  usleep(500'000);  // for the profiler to have seen the program
  const windlass::ThreadLabel inherited(route(), "/child");
  std::thread ann(run, "ann", ns), bob(run, "bob", ns);
  ann.join();
  bob.join();
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    std::printf("/child %" PRId64 "\n", spin(ns));
    std::fflush(stdout);
    _exit(0);
  }
  return child > 0 && waitpid(child, nullptr, 0) == child ? 0 : 1;
}
