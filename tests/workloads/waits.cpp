// Threads that wait in known functions, for times that they measure themselves.
//   waits ROUNDS [BEGIN_MS]
// Waits BEGIN_MS in all threads first, so that a recording can find them waiting. SIGUSR1 ends this. Prints a line for
// each thread:
//   TID NAME WALL_NS CPU_NS SLEEP_NS LOCK_NS READ_NS DISTURBED_NS
// WALL and CPU are of the thread. SLEEP, LOCK and READ are what it waited in wait_sleep(), wait_lock() and wait_read(),
// without the CPU time that it had meanwhile. DISTURBED is the part of these three in which it also lost its CPU.
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "lost_cpu.h"

namespace {

std::int64_t ns_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}
std::int64_t wall_clock() { return ns_of(CLOCK_MONOTONIC); }
std::int64_t cpu_clock() { return ns_of(CLOCK_THREAD_CPUTIME_ID); }

int rounds, begin_ms;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
int pipe_ends[2];
volatile sig_atomic_t woken;

void wake(int) { woken = 1; }

void sleep_ms(int ms) {
  const timespec time{ms / 1000, (ms % 1000) * 1'000'000L};
  nanosleep(&time, nullptr);
}

}  // namespace

// Not static, not inlined, no tail calls: each is a frame of its own.
#define WAITS extern "C" __attribute__((noinline))

WAITS void wait_begin() {
  sleep_ms(begin_ms);
  asm volatile("" ::: "memory");
}
WAITS void wait_sleep() {
  sleep_ms(7);
  asm volatile("" ::: "memory");
}
WAITS void wait_lock() {
  pthread_mutex_lock(&lock);
  asm volatile("" ::: "memory");
  pthread_mutex_unlock(&lock);
}
WAITS void wait_read() {
  char byte;
  if (read(pipe_ends[0], &byte, 1) != 1) std::abort();
  asm volatile("" ::: "memory");
}
WAITS void spin() {
  for (const std::int64_t until = cpu_clock() + 3'000'000; cpu_clock() < until;) continue;
  asm volatile("" ::: "memory");
}

namespace {

struct Waited {
  std::int64_t sleep = 0, lock = 0, read = 0, disturbed = 0;
};

template <typename Wait>
void measure(Waited& waited, std::int64_t Waited::*sum, Wait wait) {
  const std::int64_t lost_before = times_lost_cpu();
  const std::int64_t wall_before = wall_clock(), cpu_before = cpu_clock();
  wait();
  const std::int64_t time = (wall_clock() - wall_before) - (cpu_clock() - cpu_before);
  waited.*sum += time;
  if (times_lost_cpu() != lost_before) waited.disturbed += time;
}

// When a thread began, by both clocks.
struct Begin {
  std::int64_t wall = wall_clock(), cpu = cpu_clock();
};

void print(const char* name, const Begin& begun, const Waited& waited) {
  std::printf("%ld %s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", syscall(SYS_gettid),
              name, wall_clock() - begun.wall, cpu_clock() - begun.cpu, waited.sleep, waited.lock, waited.read,
              waited.disturbed);
}

}  // namespace

extern "C" void* sleeper(void*) {
  const Begin begun;
  Waited waited;
  wait_begin();
  for (int i = 0; i < rounds; ++i) {
    measure(waited, &Waited::sleep, wait_sleep);
    measure(waited, &Waited::lock, wait_lock);
    spin();
  }
  print("sleeper", begun, waited);
  return nullptr;
}

extern "C" void* reader(void*) {
  const Begin begun;
  Waited waited;
  wait_begin();
  for (int i = 0; i < rounds; ++i) measure(waited, &Waited::read, wait_read);
  print("reader", begun, waited);
  return nullptr;
}

int main(int argc, char** argv) {
  rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  begin_ms = argc > 2 ? std::atoi(argv[2]) : 0;
  const Begin begun;
  Waited waited;
  if (pipe(pipe_ends) != 0) return 1;
  signal(SIGUSR1, wake);
  pthread_t threads[2];
  pthread_create(&threads[0], nullptr, sleeper, nullptr);
  pthread_create(&threads[1], nullptr, reader, nullptr);
  wait_begin();
  for (const pthread_t thread : threads)
    if (woken) pthread_kill(thread, SIGUSR1);
  for (int i = 0; i < rounds; ++i) {
    pthread_mutex_lock(&lock);
    measure(waited, &Waited::sleep, wait_sleep);
    pthread_mutex_unlock(&lock);
    if (write(pipe_ends[1], "x", 1) != 1) return 1;
    measure(waited, &Waited::sleep, wait_sleep);
  }
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  print("main", begun, waited);
  return 0;
}
