// A program whose stacks are known: main waits at the bottom of a recursion over a library function's callback, two
// threads at the bottom of theirs. Prints "ready" once all stand there.
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

std::atomic<int> waiting = 0;

[[gnu::noinline]] void stand_still() {
  ++waiting;
  for (;;) ::pause();
}

struct Tower {
  int height;
  [[gnu::noinline]] int climb(int floor) const {
    if (floor == height) stand_still();
    return climb(floor + 1) + 1;
  }
};

int wait_in_compare(const void*, const void*) {
  if (waiting < 2) ::usleep(1000);
  while (waiting < 2) ::usleep(1000);
  std::puts("ready");
  std::fflush(stdout);
  return Tower{12}.climb(0);
}

}  // namespace

int main() {
  std::thread first([] {
    ::pthread_setname_np(::pthread_self(), "first");
    Tower{5}.climb(0);
  });
  std::thread second([] {
    ::pthread_setname_np(::pthread_self(), "second");
    Tower{50}.climb(0);
  });
  int numbers[] = {1, 2};
  ::qsort(numbers, 2, sizeof(int), wait_in_compare);
  first.join();
  second.join();
}
