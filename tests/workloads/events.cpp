// Does things that the kernel counts, in known functions and numbers:
//   events PAGES CALLS FORKS [CPU]
// touch_pages() touches PAGES fresh pages, each of two threads calls probed() CALLS times, and make_children() forks
// FORKS children that end at once. With a CPU, it goes there once the pages are touched.
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#define APART extern "C" __attribute__((noinline, visibility("default")))

APART int touch_pages(int pages) {
  const auto size = static_cast<std::size_t>(pages) * 4096;
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  madvise(memory, size, MADV_NOHUGEPAGE);
  for (std::size_t at = 0; at < size; at += 4096) static_cast<volatile char*>(memory)[at] = 1;
  munmap(memory, size);
  return 0;
}

APART int probed(int number) {
  asm volatile("" : "+r"(number));
  return number + 1;
}

APART void* call_probed(void* calls) {
  int sum = 0;
  for (long i = 0; i < reinterpret_cast<long>(calls); ++i) sum = probed(sum);
  return sum == reinterpret_cast<long>(calls) ? nullptr : calls;
}

APART int make_children(int children) {
  for (int i = 0; i < children; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    if (child < 0 || waitpid(child, nullptr, 0) != child) return 1;
  }
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  // As long as a recording takes to know what the program has mapped.
  usleep(std::getenv("WINDLASS_EMULATED") != nullptr ? 5'000'000 : 200'000);
  if (touch_pages(std::atoi(argv[1])) != 0) return 1;
  if (argc > 4) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(static_cast<unsigned>(std::atoi(argv[4])), &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus) != 0) return 1;
  }
  pthread_t thread;
  void* const calls = reinterpret_cast<void*>(std::atol(argv[2]));
  pthread_create(&thread, nullptr, call_probed, calls);
  void* wrong = call_probed(calls);
  if (wrong != nullptr || pthread_join(thread, &wrong) != 0 || wrong != nullptr) return 1;
  return make_children(std::atoi(argv[3]));
}
