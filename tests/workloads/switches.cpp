// Two threads that hand a byte back and forth as fast as they can, for argv[1] seconds: two switches a round.
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

int there[2], back[2];

double now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void* answer(void*) {
  char byte;
  while (read(there[0], &byte, 1) == 1)
    if (write(back[1], &byte, 1) != 1) break;
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1;
  if (pipe(there) != 0 || pipe(back) != 0) return 1;
  pthread_t thread;
  pthread_create(&thread, nullptr, answer, nullptr);
  unsigned long rounds = 0;
  char byte = 'x';
  const double begun = now();
  for (; now() < begun + seconds; ++rounds)
    if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) return 1;
  std::printf("%.0f rounds a second\n", static_cast<double>(rounds) / (now() - begun));
  close(there[1]);
  pthread_join(thread, nullptr);
  return 0;
}
