// Threads that wait for locks in known functions, a known number of times, for times that they measure themselves.
//   locks THREADS ROUNDS HOLD_MS
// Each round: the main thread holds a mutex until all threads sleep for it, and HOLD_MS more. They have it one after
// another, for 2 ms each. Then the main thread holds a lock for readers and writers, with a tenth of the time, and all
// threads wait to read. So each thread sleeps once for each lock. Besides, each waits on a condition variable, for
// semaphores and at a barrier. Prints a line for each thread:
//   TID MUTEX_NS READ_LOCK_NS DISTURBED_NS CPU_NS
// The times are those of wait_mutex() and wait_read_lock(), without the CPU time that the thread had meanwhile, which
// is CPU_NS for both. DISTURBED is the part of both in which the thread also lost its CPU.
//
//   locks kernel
// One thread is long in a write to a file, and another one waits in append_byte() for the kernel's lock of this file.
// Both are on one CPU: who waits for a lock whose holder runs may spin.
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "lost_cpu.h"

namespace {

std::int64_t ns_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

void sleep_us(long us) {
  const timespec time{us / 1'000'000, us % 1'000'000 * 1000};
  nanosleep(&time, nullptr);
}

int rounds, hold_ms;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_rwlock_t read_lock = PTHREAD_RWLOCK_INITIALIZER;
pthread_barrier_t barrier;
sem_t done;

enum class Place : std::uint8_t { kOther, kCondition, kMutex, kReadLock };

struct Worker {
  pthread_t thread{};
  std::atomic<long> tid = 0;
  std::atomic<Place> place = Place::kOther;  // where it is about to sleep
  sem_t start{};
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  int told = 0;  // rounds
  std::int64_t waited_mutex = 0, waited_read_lock = 0, disturbed = 0, on_cpu = 0;
};

// Does the thread sleep? In /proc/PID/task/TID/stat its state stands behind the name.
bool sleeps(long tid) {
  char text[512];
  std::snprintf(text, sizeof text, "/proc/self/task/%ld/stat", tid);
  FILE* file = std::fopen(text, "r");
  if (file == nullptr) return false;
  const bool has_read = std::fgets(text, sizeof text, file) != nullptr;
  std::fclose(file);
  const char* name_end = has_read ? std::strrchr(text, ')') : nullptr;
  return name_end != nullptr && name_end[1] == ' ' && name_end[2] == 'S';
}

// Says where all threads are, and gives up, rather than wait for ever.
[[noreturn]] void give_up(const std::vector<Worker>& workers, Place place) {
  std::printf("locks: not all threads wait at place %d:", static_cast<int>(place));
  for (const Worker& one : workers)
    std::printf(" %ld at %d, %s;", one.tid.load(), static_cast<int>(one.place.load()),
                sleeps(one.tid) ? "asleep" : "awake");
  std::printf("\n");
  std::exit(1);
}

void await_all(const std::vector<Worker>& workers, Place place) {
  constexpr std::int64_t kLongest = 120'000'000'000;
  const std::int64_t begun = ns_of(CLOCK_MONOTONIC);
  for (const Worker& one : workers)
    while (one.place != place || !sleeps(one.tid)) {
      if (ns_of(CLOCK_MONOTONIC) - begun > kLongest) give_up(workers, place);
      sleep_us(500);
    }
}

template <typename Wait>
void measure(Worker& worker, std::int64_t Worker::*sum, Wait wait) {
  const std::int64_t lost = times_lost_cpu();
  const std::int64_t wall = ns_of(CLOCK_MONOTONIC), cpu = ns_of(CLOCK_THREAD_CPUTIME_ID);
  wait();
  const std::int64_t cpu_time = ns_of(CLOCK_THREAD_CPUTIME_ID) - cpu;
  const std::int64_t time = ns_of(CLOCK_MONOTONIC) - wall - cpu_time;
  worker.*sum += time;
  worker.on_cpu += cpu_time;
  if (times_lost_cpu() != lost) worker.disturbed += time;
}

}  // namespace

// Not static, not inlined, no tail calls: each is a frame of its own.
#define LOCKS extern "C" __attribute__((noinline))

LOCKS void wait_mutex() {
  pthread_mutex_lock(&mutex);
  asm volatile("" ::: "memory");
}
LOCKS void pass_mutex() {  // of a thread, to another one
  pthread_mutex_unlock(&mutex);
  asm volatile("" ::: "memory");
}
LOCKS void release_mutex() {  // of the main thread
  pthread_mutex_unlock(&mutex);
  asm volatile("" ::: "memory");
}
LOCKS void wait_read_lock() {
  pthread_rwlock_rdlock(&read_lock);
  asm volatile("" ::: "memory");
}
LOCKS void release_write_lock() {
  pthread_rwlock_unlock(&read_lock);
  asm volatile("" ::: "memory");
}
LOCKS void wait_condition(Worker& worker, int round) {
  pthread_mutex_lock(&worker.mutex);
  while (worker.told <= round) pthread_cond_wait(&worker.condition, &worker.mutex);
  pthread_mutex_unlock(&worker.mutex);
  asm volatile("" ::: "memory");
}
LOCKS void wait_semaphore(sem_t& semaphore) {
  while (sem_wait(&semaphore) != 0) continue;
  asm volatile("" ::: "memory");
}
LOCKS void wait_barrier() {
  pthread_barrier_wait(&barrier);
  asm volatile("" ::: "memory");
}
LOCKS void append_byte(int file) {
  if (pwrite(file, "x", 1, 0) != 1) std::abort();
  asm volatile("" ::: "memory");
}

extern "C" void* worker(void* argument) {
  Worker& self = *static_cast<Worker*>(argument);
  self.tid = syscall(SYS_gettid);
  for (int round = 0; round < rounds; ++round) {
    self.place = Place::kCondition;
    wait_condition(self, round);
    self.place = Place::kMutex;
    measure(self, &Worker::waited_mutex, wait_mutex);
    self.place = Place::kOther;
    sleep_us(2000);
    pass_mutex();
    sem_post(&done);
    wait_semaphore(self.start);
    self.place = Place::kReadLock;
    measure(self, &Worker::waited_read_lock, wait_read_lock);
    self.place = Place::kOther;
    pthread_rwlock_unlock(&read_lock);
    wait_barrier();
  }
  std::printf("%ld %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", self.tid.load(), self.waited_mutex,
              self.waited_read_lock, self.disturbed, self.on_cpu);
  return nullptr;
}

// The thread is told when nobody has its mutex any more, so that it need not wait for that.
static void tell(Worker& worker) {
  pthread_mutex_lock(&worker.mutex);
  ++worker.told;
  pthread_mutex_unlock(&worker.mutex);
  pthread_cond_signal(&worker.condition);
}

static void run_round(std::vector<Worker>& workers) {
  await_all(workers, Place::kCondition);
  pthread_mutex_lock(&mutex);
  for (Worker& one : workers) tell(one);
  await_all(workers, Place::kMutex);
  sleep_us(hold_ms * 1000L);
  release_mutex();
  for (std::size_t i = 0; i < workers.size(); ++i) wait_semaphore(done);
  pthread_rwlock_wrlock(&read_lock);
  for (Worker& one : workers) sem_post(&one.start);
  await_all(workers, Place::kReadLock);
  sleep_us(hold_ms * 1000L / 10);
  release_write_lock();
  wait_barrier();
}

extern "C" void* write_much(void* argument) {
  const int file = *static_cast<const int*>(argument);
  static const std::vector<char> bytes(std::size_t{256} << 20, 'x');
  if (write(file, bytes.data(), bytes.size()) <= 0) std::abort();
  return nullptr;
}

static int run_kernel() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  sched_setaffinity(0, sizeof one, &one);
  int file = memfd_create("locks", 0);
  pthread_t writer;
  pthread_create(&writer, nullptr, write_much, &file);
  struct stat status {};
  while (fstat(file, &status) == 0 && status.st_size == 0) sched_yield();
  append_byte(file);
  pthread_join(writer, nullptr);
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "kernel") == 0) return run_kernel();
  if (argc != 4) return 2;
  std::vector<Worker> workers(static_cast<std::size_t>(std::atoi(argv[1])));
  rounds = std::atoi(argv[2]);
  hold_ms = std::atoi(argv[3]);
  pthread_barrier_init(&barrier, nullptr, static_cast<unsigned>(workers.size()) + 1);
  for (Worker& one : workers) pthread_create(&one.thread, nullptr, worker, &one);
  for (int round = 0; round < rounds; ++round) run_round(workers);
  for (Worker& one : workers) pthread_join(one.thread, nullptr);
  return 0;
}
