// So many threads that all wait in the same function, by three names in turn: many_threads NUMBER. Prints "ready" once
// they do.
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace {

std::atomic<int> waiting = 0;

void* wait_here(void* number) {
  char name[16];
  std::snprintf(name, sizeof name, "worker-%ld", reinterpret_cast<long>(number) % 3);
  ::pthread_setname_np(::pthread_self(), name);
  ++waiting;
  for (;;) ::pause();
}

}  // namespace

int main(int, char** arguments) {
  const int number = std::atoi(arguments[1]);
  pthread_attr_t small;
  ::pthread_attr_init(&small);
  ::pthread_attr_setstacksize(&small, 64 << 10);
  for (long i = 0; i < number; ++i) {
    pthread_t thread;
    if (::pthread_create(&thread, &small, wait_here, reinterpret_cast<void*>(i)) != 0) return 1;
  }
  while (waiting < number) ::usleep(1000);
  std::puts("ready");
  std::fflush(stdout);
  for (;;) ::pause();
}
