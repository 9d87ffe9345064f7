// What a walk may not do in a signal handler: allocate, lock, and, once modules are known, call the kernel. The program
// has its own malloc and mutexes, which count, and a system call filter, which kills.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>

#include "windlass/backtrace.h"

namespace {

thread_local bool walking;
std::atomic<int> allocations;
std::atomic<int> locks;

void count(std::atomic<int>& counter) {
  if (walking) ++counter;
}

}  // namespace

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void __libc_free(void*);

void* malloc(std::size_t size) {
  count(allocations);
  return __libc_malloc(size);
}
void* calloc(std::size_t n, std::size_t size) {
  count(allocations);
  return __libc_calloc(n, size);
}
void* realloc(void* old, std::size_t size) {
  count(allocations);
  return __libc_realloc(old, size);
}
void free(void* memory) {
  count(allocations);
  __libc_free(memory);
}
int pthread_mutex_lock(pthread_mutex_t* mutex) {
  count(locks);
  static const auto real = reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  return real(mutex);
}
}

namespace windlass {
namespace {

std::uint64_t pcs[1024];

template <typename Body>
void watched(Body&& body) {
  walking = true;
  body();
  walking = false;
}

[[gnu::noinline]] void descend(int depth, const std::function<void()>& leaf) {
  volatile char pad[48] = {};
  pad[0] = static_cast<char>(depth);
  if (depth == 0)
    leaf();
  else
    descend(depth - 1, leaf);
  pad[1] = pad[0];
}

void walk_all() {
  ASSERT_GT(backtrace(pcs, 1024), 2u);
  ASSERT_GT(backtrace_from(capture_registers(), pcs, 1024), 2u);
}
void step_all() {
  StackWalker walker(own_process(), capture_registers());
  while (walker.step()) {}
  ASSERT_EQ(walker.end_reason(), WalkEnd::kComplete);
}

// The watch works at all.
TEST(Safety, TheWatchSees) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  const int before = allocations;
  watched([&] {
    std::free(std::malloc(10));
    pthread_mutex_lock(&mutex);
  });
  pthread_mutex_unlock(&mutex);
  EXPECT_EQ(allocations, before + 2);
  EXPECT_EQ(locks, 1);
}

// The very first walks of the process included: this is the first test that walks.
TEST(Safety, NoAllocationNoLock) {
  allocations = locks = 0;
  for (const int depth : {1, 20, 600}) {
    descend(depth, [] {
      for (int i = 0; i < 5; ++i) {
        watched(walk_all);
        watched(step_all);
        watched([] { (void)own_function(reinterpret_cast<std::uint64_t>(&descend) + 1); });
      }
    });
  }
  EXPECT_EQ(allocations, 0);
  EXPECT_EQ(locks, 0);
}

#if defined(__x86_64__)
void forbid_system_calls() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  const sock_fprog program{std::size(filter), filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    _exit(77);
}

// 0: no system call; 77: the machine has no filters.
int in_filtered_child(const std::function<void()>& prepared, const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    prepared();
    forbid_system_calls();
    body();
    syscall(SYS_exit_group, 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Safety, TheFilterKills) {
  const int status = in_filtered_child([] {}, [] { (void)getppid(); });
  if (status == 77) GTEST_SKIP() << "no seccomp filters here";
  EXPECT_EQ(status, -SIGSYS);
}

TEST(Safety, NoSystemCallWhenWarm) {
  int status = 0;
  for (const int depth : {1, 30, 500}) {
    descend(depth, [&] {
      const auto walks = [] {
        for (int i = 0; i < 50; ++i) {
          walk_all();
          step_all();
        }
      };
      if (status == 0) status = in_filtered_child(walks, walks);
    });
  }
  if (status == 77) GTEST_SKIP() << "no seccomp filters here";
  EXPECT_EQ(status, 0);
}

void* in_thread(void* status) {
  descend(40, [&] {
    const auto walks = [] {
      for (int i = 0; i < 50; ++i) {
        walk_all();
        step_all();
      }
    };
    *static_cast<int*>(status) = in_filtered_child(walks, walks);
  });
  return nullptr;
}

TEST(Safety, NoSystemCallWhenWarmInAThread) {
  int status = 0;
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, nullptr, in_thread, &status), 0);
  pthread_join(thread, nullptr);
  if (status == 77) GTEST_SKIP() << "no seccomp filters here";
  EXPECT_EQ(status, 0);
}
#endif

}  // namespace
}  // namespace windlass
