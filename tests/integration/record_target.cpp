// What test_record profiles: one behaviour a mode. Built -O2 without frame pointers.
//   record_target MODE [ARGUMENT]
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

namespace {

volatile std::uint64_t sink;

// What the calling thread has used.
double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

double seconds_argument(char** argv) { return argv[2] != nullptr ? std::atof(argv[2]) : 1; }

// ---- a known chain: main -> outer -> middle -> inner
// ------------------------------------------------------------------

// This and the other modes take seconds of CPU time: how many samples they get does not depend on what else the machine
// does.
[[gnu::noinline]] std::uint64_t inner(double seconds) {
  const double end = cpu_seconds() + seconds;
  std::uint64_t x = 1;
  while (cpu_seconds() < end)
    for (int i = 0; i < 100000; ++i) x = x * 6364136223846793005ull + 1442695040888963407ull;
  return x;
}
[[gnu::noinline]] std::uint64_t middle(double seconds) { return inner(seconds) ^ 5; }
[[gnu::noinline]] std::uint64_t outer(double seconds) { return middle(seconds) + 3; }

// ---- dlopen and dlclose, over and over
// --------------------------------------------------------------------------------

// Prints the CPU time of two kinds of work, which is the time in which they are sampled. The duration of the rest
// depends on the machine.
void say_work(double one, double other) { std::printf("work: %.3f and %.3f seconds\n", one, other); }

int load_and_unload(const char* first, const char* second, double seconds) {
  double in_work[2] = {};
  const double end = cpu_seconds() + seconds;
  for (bool which = false; cpu_seconds() < end; which = !which) {
    void* library = dlopen(which ? first : second, RTLD_NOW);
    if (library == nullptr) return 9;
    auto work = reinterpret_cast<std::uint64_t (*)(std::uint64_t)>(dlsym(library, which ? "work_a" : "work_b"));
    if (work == nullptr) return 9;
    const double begin = cpu_seconds();
    sink = work(2'000'000);
    in_work[which ? 0 : 1] += cpu_seconds() - begin;
    dlclose(library);
  }
  say_work(in_work[0], in_work[1]);
  return 0;
}

// ---- short-lived processes
// ----------------------------------------------------------------------------------------------

[[gnu::noinline]] void short_work() {
  for (int k = 0; k < 600000; ++k) sink = sink + 1;
}

int fork_storm(int count) {
  void* const shared = mmap(nullptr, sizeof(double), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 9;
  auto* const in_work = static_cast<double*>(shared);
  for (int i = 0; i < count; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      const double begin = cpu_seconds();
      short_work();
      *in_work += cpu_seconds() - begin;
      _exit(0);
    }
    if (child > 0) waitpid(child, nullptr, 0);
  }
  say_work(*in_work, 0);
  return 0;
}

// ---- a stack that is garbage, and changes
// --------------------------------------------------------------------------------

ucontext_t main_context, garbage_context;
std::uint64_t* garbage;
constexpr std::size_t kGarbageWords = 32768;
double garbage_seconds;

void rewrite_stack() {
  // Everything above this frame becomes random words, pointers into code and stack among them. It never returns.
  std::uint64_t x = 88172645463325252ull;
  auto* frame = static_cast<std::uint64_t*>(__builtin_frame_address(0));
  const double end = cpu_seconds() + garbage_seconds;
  while (cpu_seconds() < end) {
    for (std::uint64_t* word = frame; word < garbage + kGarbageWords; ++word) {
      x ^= x << 13, x ^= x >> 7, x ^= x << 17;
      switch (x & 3) {
        case 0: *word = reinterpret_cast<std::uint64_t>(frame) + (x >> 8 & 0xfff8); break;
        case 1: *word = reinterpret_cast<std::uint64_t>(&rewrite_stack) + (x >> 8 & 0xfff); break;
        default: *word = x; break;
      }
    }
  }
  _exit(0);
}

int scribble(double seconds) {
  garbage_seconds = seconds;
  garbage = static_cast<std::uint64_t*>(std::malloc(kGarbageWords * 8));
  getcontext(&garbage_context);
  garbage_context.uc_stack.ss_sp = garbage;
  garbage_context.uc_stack.ss_size = kGarbageWords * 8;
  garbage_context.uc_link = &main_context;
  makecontext(&garbage_context, rewrite_stack, 0);
  swapcontext(&main_context, &garbage_context);
  return 9;
}

// ---- code that is mapped, run and unmapped all the time
// -------------------------------------------------------------------

int unmap(double seconds) {
#if defined(__aarch64__)
  const std::uint32_t code[] = {0xf1000400, 0x54ffffe1, 0xd65f03c0};  // subs x0, x0, #1; b.ne -4; ret
#else
  // mov rax, rdi; dec rax; jnz -3; ret
  const unsigned char code[] = {0x48, 0x89, 0xf8, 0x48, 0xff, 0xc8, 0x75, 0xfb, 0xc3};
#endif
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      const double end = cpu_seconds() + seconds;
      while (cpu_seconds() < end) {
        void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) return;
        std::memcpy(page, code, sizeof code);
        __builtin___clear_cache(static_cast<char*>(page), static_cast<char*>(page) + sizeof code);
        reinterpret_cast<std::uint64_t (*)(std::uint64_t)>(page)(200000);
        munmap(page, 4096);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const std::string mode = argv[1];
  if (mode == "chain") {
    sink = outer(seconds_argument(argv));
    return 0;
  }
  if (mode == "exit") return std::atoi(argv[2]);
  if (mode == "kill") return std::raise(std::atoi(argv[2]));
  if (mode == "dlopen") return load_and_unload(argv[2], argv[3], 2);
  if (mode == "forks") return fork_storm(std::atoi(argv[2]));
  if (mode == "scribble") return scribble(seconds_argument(argv));
  if (mode == "unmap") return unmap(seconds_argument(argv));
  return 2;
}
