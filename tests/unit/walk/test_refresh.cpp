// A process that is stopped, walked and let go again and again: each walk is of what it is then.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "os/proc_file.h"
#include "walk/target/process_memory.h"
#include "windlass/jit/code_manager.h"
#include "windlass/target.h"

namespace windlass {
namespace {

using namespace std::chrono_literals;

// What a child and its test share.
struct Board {
  std::atomic<int> wanted, done;  // steps of the child's
  std::atomic<std::uint64_t> counter;
};
Board* board = nullptr;

void wait_until(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!done() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(done());
}

// In the child: a step is done, and the next one is asked for.
void step_done() {
  ++board->done;
  while (board->wanted < board->done) {
    ++board->counter;
    ::usleep(200);
  }
}

class Child {
 public:
  explicit Child(void (*run)()) {
    board->wanted = 0;
    board->done = 0;
    board->counter = 0;
    pid_ = ::fork();
    if (pid_ != 0) {
      wait_until([] { return board->done == 1; });
      return;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    run();
    for (;;) ::pause();
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  [[nodiscard]] std::uint64_t pid() const { return static_cast<std::uint64_t>(pid_); }
  void next() const {
    const int step = ++board->wanted;
    wait_until([&] { return board->done == step + 1; });
  }
  void expect_running() const {
    const std::uint64_t before = board->counter;
    wait_until([&] { return board->counter > before + 2; });
  }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

class Refresh : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    board =
        static_cast<Board*>(::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  void SetUp() override {
    const Child child(step_done);
    const auto target = open_process(child.pid());
    if (!target && target.error().code == ErrorCode::kSystem)
      GTEST_SKIP() << "SKIPPED: may not trace here: " << target.error().text();
  }
};

const ModuleInfo* module_of(const Target& target, std::string_view path) {
  for (const ModuleInfo* info : target.space.modules())
    if (info->path == path) return info;
  return nullptr;
}

// The pcs of a thread, none if the walk does not end well.
std::vector<std::uint64_t> walk(const Target& target, const Thread& thread) {
  std::vector<std::uint64_t> pcs;
  StackWalker walker(target.space, thread.registers);
  for (const Frame& frame : walker) pcs.push_back(frame.pc().lookup());
  EXPECT_EQ(walker.end_reason(), WalkEnd::kComplete) << walker.error().text();
  return pcs;
}

// Refreshes, walks every thread to its end, lets go.
Refreshed look_again(Target& target) {
  const auto changed = target.refresh();
  EXPECT_TRUE(changed) << changed.error().text();
  for (const Thread& thread : target.threads) EXPECT_GT(walk(target, thread).size(), 2u) << thread.id;
  target.release();
  return changed ? *changed : Refreshed{};
}

TEST_F(Refresh, StandsAndRunsByTurns) {
  const Child child(step_done);
  auto target = open_process(child.pid());
  ASSERT_TRUE(target) << target.error().text();
  EXPECT_GT(target->release(), 0u);
  EXPECT_EQ(target->release(), 0u);
  for (int i = 0; i < 10; ++i) {
    if (i % 2 == 0) child.expect_running();
    const auto before = std::chrono::steady_clock::now();
    const auto changed = target->refresh();
    ASSERT_TRUE(changed) << changed.error().text();
    EXPECT_EQ(changed->modules_gone + changed->modules_new, 0u);
    EXPECT_FALSE(changed->executed);
    const std::uint64_t counted = board->counter;
    std::this_thread::sleep_for(5ms);
    EXPECT_EQ(board->counter, counted);
    ASSERT_EQ(target->threads.size(), 1u);
    EXPECT_GT(walk(*target, target->threads[0]).size(), 2u);
    if (i % 2 == 0) continue;  // refresh() lets it go, too
    const std::uint64_t stood = target->release();
    const std::chrono::nanoseconds passed = std::chrono::steady_clock::now() - before;
    EXPECT_GE(stood, 5'000'000u);
    EXPECT_LE(stood, static_cast<std::uint64_t>(passed.count()));
  }
}

TEST_F(Refresh, WhatHasNotChangedIsKept) {
  const Child child(step_done);
  auto target = open_process(child.pid());
  ASSERT_TRUE(target);
  target->release();
  const auto before = target->space.modules();
  const auto changed = look_again(*target);
  EXPECT_EQ(changed.modules_gone + changed.modules_new, 0u);
  EXPECT_EQ(target->space.modules(), before);  // the very same objects
  EXPECT_FALSE(target->command.empty());
}

__attribute__((noinline)) void go_down(int depth) {
  if (depth == 0)
    step_done();
  else
    go_down(depth - 1);
  asm volatile("");
}

TEST_F(Refresh, TheStackIsTheOneOfNow) {
  const Child child(+[] {
    go_down(10);
    go_down(100);
    go_down(1);
    step_done();
  });
  auto target = open_process(child.pid());
  ASSERT_TRUE(target);
  std::vector<std::size_t> frames{walk(*target, target->threads[0]).size()};
  for (int i = 0; i < 2; ++i) {
    target->release();
    child.next();
    ASSERT_TRUE(target->refresh());
    frames.push_back(walk(*target, target->threads[0]).size());
  }
  // The child sleeps at various places of step_done().
  EXPECT_GE(frames[1], frames[0] + 85);
  EXPECT_LE(frames[1], frames[0] + 95);
  EXPECT_LE(frames[2] + 4, frames[0]);
}

TEST_F(Refresh, ThreadsComeAndGo) {
  const Child child(+[] {
    step_done();
    pthread_t threads[3];
    static std::atomic<bool> stop;
    static std::atomic<int> named;
    for (pthread_t& thread : threads)
      pthread_create(
          &thread, nullptr,
          [](void*) -> void* {
            ::prctl(PR_SET_NAME, "later");
            ++named;
            while (!stop) ::usleep(100);
            return nullptr;
          },
          nullptr);
    while (named < 3) ::usleep(100);
    step_done();
    stop = true;
    for (const pthread_t thread : threads) pthread_join(thread, nullptr);
    step_done();
  });
  auto target = open_process(child.pid());
  ASSERT_TRUE(target);
  EXPECT_EQ(target->threads.size(), 1u);
  target->release();
  child.next();
  look_again(*target);
  ASSERT_EQ(target->threads.size(), 4u);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(target->threads[i].name, "later");
  child.next();
  look_again(*target);
  EXPECT_EQ(target->threads.size(), 1u);
}

TEST_F(Refresh, AThreadsNewNameIsSeenInTheEnd) {
  const Child child(+[] {
    ::prctl(PR_SET_NAME, "before");
    step_done();
    ::prctl(PR_SET_NAME, "after");
    step_done();
  });
  auto target = open_process(child.pid());
  ASSERT_TRUE(target);
  EXPECT_EQ(target->threads[0].name, "before");
  target->release();
  child.next();
  for (int i = 0; i < 16; ++i) look_again(*target);
  EXPECT_EQ(target->threads[0].name, "after");
}

// ---- libraries ------------------------------------------------------------------------------------------------------

char library[] = "/tmp/windlass-refresh-XXXXXX";

void copy_library(const char* from) {
  std::filesystem::copy_file(from, library, std::filesystem::copy_options::overwrite_existing);
}

void call_library() {
  void* handle = ::dlopen(library, RTLD_NOW);
  const auto call = reinterpret_cast<void (*)(void*, void (*)(void*))>(::dlsym(handle, "plugin_call"));
  if (call != nullptr) call(nullptr, [](void*) { step_done(); });
  ::dlclose(handle);
}

class RefreshLibraries : public Refresh {
 protected:
  void SetUp() override {
    Refresh::SetUp();
    if (IsSkipped()) return;
    const int fd = ::mkstemp(library);
    ASSERT_GE(fd, 0);
    ::close(fd);
  }
  void TearDown() override {
    ::unlink(library);
    std::memcpy(library + sizeof library - 7, "XXXXXX", 6);
  }
};

bool passes(const Target& target, const ModuleInfo& module) {
  for (const std::uint64_t pc : walk(target, target.threads[0]))
    if (pc >= module.begin && pc < module.end) return true;
  return false;
}

TEST_F(RefreshLibraries, ComeAndGo) {
  copy_library(WINDLASS_PLUGIN_A);
  const Child child(+[] {
    step_done();
    call_library();
    step_done();
  });
  auto target = open_process(child.pid());
  ASSERT_TRUE(target);
  const std::size_t without = target->space.modules().size();
  EXPECT_EQ(module_of(*target, library), nullptr);
  target->release();
  child.next();
  EXPECT_EQ(look_again(*target).modules_new, 1u);
  const ModuleInfo* module = module_of(*target, library);
  ASSERT_NE(module, nullptr);
  EXPECT_TRUE(passes(*target, *module));
  child.next();
  const Refreshed changed = look_again(*target);
  EXPECT_EQ(changed.modules_gone, 1u);
  EXPECT_EQ(changed.modules_new, 0u);
  EXPECT_EQ(module_of(*target, library), nullptr);
  EXPECT_EQ(target->space.modules().size(), without);
}

// Two libraries of one layout, whose frames differ, one after the other under one name: with one inode, at one place.
TEST_F(RefreshLibraries, AnotherOneAtTheSamePlace) {
  copy_library(WINDLASS_PLUGIN_A);
  const Child child(+[] {
    call_library();
    step_done();
    call_library();
    step_done();
  });
  auto target = open_process(child.pid());
  ASSERT_TRUE(target);
  const ModuleInfo* module = module_of(*target, library);
  ASSERT_NE(module, nullptr);
  const std::uint64_t begin = module->begin;
  EXPECT_TRUE(passes(*target, *module));
  target->release();
  child.next();
  // No look in between: to the mappings it is as if nothing had been.
  std::this_thread::sleep_for(20ms);  // the clock of files goes by ticks
  copy_library(WINDLASS_PLUGIN_B);
  child.next();
  const Refreshed changed = look_again(*target);
  EXPECT_EQ(changed.modules_gone, 1u);
  EXPECT_EQ(changed.modules_new, 1u);
  module = module_of(*target, library);
  ASSERT_NE(module, nullptr);
  EXPECT_EQ(module->begin, begin) << "the test wants it at the same place";
  EXPECT_TRUE(passes(*target, *module));
}

TEST_F(Refresh, CodeWithoutAFile) {
  const Child child(+[] {
    step_done();
    void* code = ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    step_done();
    ::munmap(code, 4096);
    step_done();
  });
  auto target = open_process(child.pid());
  ASSERT_TRUE(target);
  target->release();
  child.next();
  EXPECT_EQ(look_again(*target).modules_new, 1u);
  child.next();
  EXPECT_EQ(look_again(*target).modules_gone, 1u);
}

// Its table is a mapping that is not executable; the code's own stays as it was.
TEST_F(Refresh, ACodeManagerForCodeThatIsThere) {
  const Child child(+[] {
    constexpr std::size_t kSize = 65536;
    void* code = ::mmap(nullptr, kSize, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    step_done();
    const auto begin = reinterpret_cast<std::uint64_t>(code);
    const auto manager = CodeManager::create(begin, begin + kSize, {.functions = 64});
    step_done();
    if (manager) step_done();
  });
  auto target = open_process(child.pid());
  ASSERT_TRUE(target);
  target->release();
  child.next();
  const Refreshed changed = look_again(*target);
  EXPECT_GT(changed.modules_new, 0u);  // all code without a file is looked at anew
  EXPECT_EQ(changed.modules_gone, changed.modules_new);
  EXPECT_EQ(look_again(*target).modules_new, 0u);
}

std::atomic<int> deep_threads;

__attribute__((noinline)) void* wait_deep(void* levels) {
  if (*static_cast<int*>(levels) == 0) {
    ++deep_threads;
    while (deep_threads > 0) ::pause();
    return nullptr;
  }
  int fewer = *static_cast<int*>(levels) - 1;
  return wait_deep(&fewer) != nullptr ? levels : nullptr;
}

// Most of what a look costs is asking the system.
TEST_F(Refresh, ALookReadsMemoryInFewCalls) {
  const Child child(+[] {
    static int levels = 300;
    for (int i = 0; i < 8; ++i) {
      pthread_t thread;
      pthread_create(&thread, nullptr, wait_deep, &levels);
    }
    while (deep_threads < 8) ::usleep(100);
    step_done();
  });
  auto target = open_process(child.pid());
  ASSERT_TRUE(target);
  const auto& memory = static_cast<const walk::ProcessMemory&>(target->space.memory());
  look_again(*target);
  std::uint64_t before = memory.system_calls();
  look_again(*target);
  // The main thread, which works, may be somewhere else.
  EXPECT_LE(memory.system_calls() - before, 4u);
  EXPECT_EQ(target->threads.size(), 9u);
}

// ---- the process itself ---------------------------------------------------------------------------------------------

TEST_F(Refresh, AnotherProgram) {
  const Child child(+[] {
    step_done();
    ++board->done;
    ::execl("/bin/sleep", "sleep", "100", nullptr);
  });
  auto target = open_process(child.pid());
  ASSERT_TRUE(target);
  EXPECT_NE(target->command, "sleep 100");
  target->release();
  child.next();
  // It has begun, and got past the dynamic linker.
  const std::string folder = "/proc/" + std::to_string(child.pid());
  const std::string asleep = std::to_string(SYS_clock_nanosleep) + " ";
  wait_until([&] {
    return os::read_proc_file(folder + "/comm") == "sleep\n" &&
           os::read_proc_file(folder + "/syscall").starts_with(asleep);
  });
  const Refreshed changed = look_again(*target);
  EXPECT_TRUE(changed.executed);
  EXPECT_GT(changed.modules_gone, 2u);
  EXPECT_GT(changed.modules_new, 0u);  // sleep may be a static program
  EXPECT_EQ(target->command, "sleep 100");
  EXPECT_EQ(target->threads[0].name, "sleep");
  EXPECT_FALSE(look_again(*target).executed);
}

TEST_F(Refresh, AnEndedProcess) {
  Child child(step_done);
  auto target = open_process(child.pid());
  ASSERT_TRUE(target);
  target->release();
  child.end();
  for (int i = 0; i < 2; ++i) {
    const auto changed = target->refresh();
    ASSERT_FALSE(changed);
    EXPECT_EQ(changed.error().code, ErrorCode::kSystem);
    EXPECT_EQ(changed.error().detail, static_cast<std::uint64_t>(ESRCH));
    EXPECT_TRUE(target->threads.empty());
    EXPECT_EQ(target->release(), 0u);
  }
}

// The number goes to another process: a namespace of process ids hands it out again.
TEST_F(Refresh, AnotherProcessOfTheSameNumber) {
  const int last = ::open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
  if (last < 0) GTEST_SKIP() << "SKIPPED: may not choose the next process id";
  Child child(step_done);
  const std::uint64_t pid = child.pid();
  auto target = open_process(pid);
  ASSERT_TRUE(target);
  target->release();
  child.end();
  for (int i = 0; i < 100; ++i) {
    const std::string before = std::to_string(pid - 1);
    ASSERT_EQ(::pwrite(last, before.data(), before.size(), 0), static_cast<ssize_t>(before.size()));
    const Child other(step_done);
    if (other.pid() != pid) continue;
    const auto changed = target->refresh();
    ASSERT_FALSE(changed);
    EXPECT_EQ(changed.error().detail, static_cast<std::uint64_t>(ESRCH));
    other.expect_running();
    ::close(last);
    return;
  }
  ::close(last);
  FAIL() << "the number " << pid << " was never given again";
}

TEST_F(Refresh, ADump) {
  const Child child(step_done);
  auto target = open_process(child.pid());
  ASSERT_TRUE(target);
  Target dump(TargetKind::kCore, std::move(target->space));
  EXPECT_EQ(dump.refresh().error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(dump.release(), 0u);
}

}  // namespace
}  // namespace windlass
