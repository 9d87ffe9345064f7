// Two threads that hand a byte back and forth as fast as they can, for argv[1] seconds: two switches a round. Prints a
// line for each thread, by its own clocks: TID WALL_NS CPU_NS. One more line has the rounds a second.
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

int there[2], back[2];

double seconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}
double now() { return seconds_of(CLOCK_MONOTONIC); }

struct Begin {
  double wall = now(), cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID);
};

void print(const Begin& begun) {
  std::printf("%ld %.0f %.0f\n", syscall(SYS_gettid), (now() - begun.wall) * 1e9,
              (seconds_of(CLOCK_THREAD_CPUTIME_ID) - begun.cpu) * 1e9);
}

void* answer(void*) {
  const Begin begun;
  char byte;
  while (read(there[0], &byte, 1) == 1)
    if (write(back[1], &byte, 1) != 1) break;
  print(begun);
  return nullptr;
}

void* ask(void* seconds) {
  const Begin begun;
  unsigned long rounds = 0;
  char byte = 'x';
  for (; now() < begun.wall + *static_cast<double*>(seconds); ++rounds)
    if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) std::abort();
  const double rate = static_cast<double>(rounds) / (now() - begun.wall);
  close(there[1]);
  print(begun);
  std::printf("%.0f rounds a second\n", rate);
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = argc > 1 ? std::atof(argv[1]) : 1;
  if (pipe(there) != 0 || pipe(back) != 0) return 1;
  pthread_t threads[2];
  pthread_create(&threads[0], nullptr, answer, nullptr);
  pthread_create(&threads[1], nullptr, ask, &seconds);
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  return 0;
}
