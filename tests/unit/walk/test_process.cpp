// Other processes: every thread stopped and walked, and all of them going on afterwards as if nothing had been.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <tuple>

#include <fmt/format.h>

#include "os/proc_file.h"
#include "os/proc_maps.h"
#include "support/await_sleep.h"
#include "support/ended_main_thread.h"
#include "support/io_uring.h"
#include "support/process_reading.h"
#include "walk/target/process_memory.h"
#include "windlass/target.h"

namespace windlass {
namespace {

using namespace std::chrono_literals;

// What a child and its test share.
struct Board {
  std::atomic<int> ready;
  std::atomic<std::uint64_t> counter;
  std::atomic<int> signals;
};
Board* board = nullptr;

void wait_until(const std::function<bool()>& done, std::chrono::milliseconds limit = 20000ms) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!done() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(done());
}

class Child {
 public:
  explicit Child(void (*run)(), int ready = 1) {
    board->ready = 0;
    board->counter = 0;
    board->signals = 0;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      run();
      ::_exit(0);
    }
    wait_until([&] { return board->ready >= ready; });
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  [[nodiscard]] std::uint64_t pid() const { return static_cast<std::uint64_t>(pid_); }
  [[nodiscard]] pid_t id() const { return pid_; }

  void expect_running() const {
    const std::uint64_t before = board->counter;
    wait_until([&] { return board->counter > before + 2; });
  }

 private:
  pid_t pid_;
};

class OtherProcess : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    board =
        static_cast<Board*>(::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  void SetUp() override {
    const Child child(+[] {
      board->ready = 1;
      ::pause();
    });
    const auto target = open_process(child.pid());
    if (!target && target.error().code == ErrorCode::kSystem)
      GTEST_SKIP() << "SKIPPED: may not trace here: " << target.error().text();
  }
};

__attribute__((noinline)) void go_down(int depth) {
  if (depth == 0) {
    ++board->ready;
    while (board->ready > 0) ::pause();
    return;
  }
  go_down(depth - 1);
  asm volatile("");
}

void* deep_thread(void* depth) {
  ::prctl(PR_SET_NAME, "deep one");
  go_down(*static_cast<int*>(depth));
  return nullptr;
}

void three_threads() {
  static int depths[] = {10, 100};
  pthread_t thread;
  for (int& depth : depths) pthread_create(&thread, nullptr, deep_thread, &depth);
  go_down(1000);
}

// Counts as long as it runs.
void counting() {
  board->ready = 1;
  for (;;) {
    ++board->counter;
    ::usleep(200);
  }
}

std::size_t frames_of(const Target& target, const Thread& thread, WalkEnd& end) {
  StackWalker walker(target.space, thread.registers);
  std::size_t frames = 1;
  while (walker.step()) ++frames;
  end = walker.end_reason();
  return frames;
}

TEST_F(OtherProcess, EveryThreadToItsEnd) {
  const Child child(three_threads, 3);
  const auto target = open_process(child.pid());
  ASSERT_TRUE(target) << target.error().text();
  EXPECT_TRUE(target->problems.empty());
  ASSERT_EQ(target->threads.size(), 3u);
  if (target->space.architecture() == Architecture::kX86_64) {
    EXPECT_EQ(~target->space.pointer_mask(), (std::uint64_t{1} << 48) - 1) << "addresses of 48 bits, none is signed";
  }
  EXPECT_EQ(target->threads[0].id, child.pid());
  const std::size_t at_least[] = {1000, 10, 100};
  for (std::size_t i = 0; i < 3; ++i) {
    WalkEnd end{};
    EXPECT_GE(frames_of(*target, target->threads[i], end), at_least[i]);
    EXPECT_LE(frames_of(*target, target->threads[i], end), at_least[i] + 40);
    EXPECT_EQ(end, WalkEnd::kComplete) << i;
    EXPECT_EQ(target->threads[i].name == "deep one", i != 0) << target->threads[i].name;
  }
}

// Modules, frames and what comes after a refresh, with files opened at once and when needed.
TEST_F(OtherProcess, OneWalkFindsTheSame) {
  const Child child(three_threads, 3);
  ASSERT_TRUE(test::await_sleep(child.pid()));
  const auto look = [](const Target& target) {
    std::string all;
    for (const ModuleInfo* info : target.space.modules())
      all += fmt::format("{:x}-{:x} {:x} {} {}\n", info->begin, info->end, info->bias, info->path, info->file);
    for (const Thread& thread : target.threads) {
      StackWalker walker(target.space, thread.registers);
      // All wait in a system call. A thread that goes on repeats the call, so the next stop may find it in front of it.
      all += fmt::format("{:x}\n", walker.frame().sp());
      while (walker.step()) all += fmt::format("{:x} {:x}\n", walker.frame().pc().value(), walker.frame().sp());
      EXPECT_EQ(walker.end_reason(), WalkEnd::kComplete);
    }
    return all;
  };
  std::string usual;
  {
    const auto target = open_process(child.pid());
    ASSERT_TRUE(target) << target.error().text();
    usual = look(*target);
  }
  auto target = open_process(child.pid(), {.one_walk = true});
  ASSERT_TRUE(target) << target.error().text();
  EXPECT_EQ(look(*target), usual);
  for (int again = 0; again < 2; ++again) {
    ASSERT_TRUE(target->refresh());
    EXPECT_EQ(look(*target), usual) << again;
  }
  EXPECT_GT(target->release(), 0u);
}

TEST_F(OtherProcess, TheMainThreadHasEnded) {
  board->ready = 0;
  const test::EndedMainThread child(+[](void*) -> void* {
    static int depth = 100;
    return deep_thread(&depth);
  });
  ASSERT_TRUE(child.ready());
  wait_until([] { return board->ready == 1; });
  auto target = open_process(static_cast<std::uint64_t>(child.pid()));
  ASSERT_TRUE(target) << target.error().text();
  for (int look = 0; look < 2; ++look) {
    ASSERT_EQ(target->threads.size(), 1u);
    EXPECT_EQ(target->threads[0].id, static_cast<std::uint64_t>(child.thread()));
    EXPECT_FALSE(target->command.empty());
    WalkEnd end{};
    EXPECT_GE(frames_of(*target, target->threads[0], end), 100u);
    EXPECT_EQ(end, WalkEnd::kComplete);
    const auto again = target->refresh();
    ASSERT_TRUE(again) << again.error().text();
    EXPECT_FALSE(again->executed);
  }
}

TEST_F(OtherProcess, AWorkerOfIoUringHasNoUserStack) {
  if (!test::IoUring().is_there()) GTEST_SKIP() << "SKIPPED: no io_uring here";
  const Child child(+[] {
    test::IoUring ring;
    int ends[2];
    char byte;
    if (::pipe(ends) == 0) ring.read(ends[0], &byte, 1, 0);  // nobody writes
    board->ready = 1;
    for (;;) ::pause();
  });
  const auto two_threads = [&] { return os::list_ids("/proc/" + std::to_string(child.pid()) + "/task").size() == 2; };
  wait_until(two_threads);
  ASSERT_TRUE(test::await_sleep(child.pid()));
  const auto target = open_process(child.pid());
  ASSERT_TRUE(target) << target.error().text();
  ASSERT_EQ(target->threads.size(), 2u);
  const auto& [main, worker] = std::tie(target->threads[0], target->threads[1]);
  EXPECT_FALSE(main.kernel_only);
  WalkEnd end{};
  EXPECT_GT(frames_of(*target, main, end), 2u);
  EXPECT_EQ(end, WalkEnd::kComplete);
  EXPECT_TRUE(worker.kernel_only) << worker.name;
  EXPECT_FALSE(worker.registers.has_sp());
}

TEST_F(OtherProcess, FewSystemCallsAWalk) {
  const Child child(three_threads, 3);
  const auto target = open_process(child.pid());
  ASSERT_TRUE(target);
  const auto* memory = static_cast<const walk::ProcessMemory*>(&target->space.memory());
  const std::uint64_t before = memory->system_calls();
  WalkEnd end{};
  const std::size_t frames = frames_of(*target, target->threads[0], end);
  const std::uint64_t calls = memory->system_calls() - before;
  std::printf("%zu frames, %llu system calls\n", frames, static_cast<unsigned long long>(calls));
  EXPECT_LT(calls, frames / 20);
}

// ---- its memory, in this process itself
// ------------------------------------------------------------------------------

class Pages {
 public:
  static constexpr std::size_t kPage = 4096, kCount = 64;
  Pages()
      : at_(static_cast<std::byte*>(
            ::mmap(nullptr, kCount * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    set(1);
  }
  ~Pages() { ::munmap(at_, kCount * kPage); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  // Each begins with its number, and this.
  void set(std::uint64_t generation) const {
    for (std::size_t i = 0; i < kCount; ++i)
      *reinterpret_cast<std::uint64_t*>(at_ + i * kPage) = i + (generation << 32);
  }
  void take_away(std::size_t i) const { ::mprotect(at_ + i * kPage, kPage, PROT_NONE); }
  [[nodiscard]] std::uint64_t address(std::size_t i) const { return reinterpret_cast<std::uint64_t>(at_ + i * kPage); }
  // Is that what `memory` says? Nothing else may be read.
  [[nodiscard]] bool is_read(const Memory& memory, std::size_t i, std::uint64_t generation) const {
    std::uint64_t value = 0;
    return memory.read(address(i), &value, sizeof value) && value == i + (generation << 32);
  }

 private:
  std::byte* at_;
};

TEST(ProcessMemory, WhatWasUsedIsReadAgainAtOnce) {
  if (const std::string reason = test::no_process_reading(); !reason.empty()) GTEST_SKIP() << reason;
  const Pages pages;
  walk::ProcessMemory memory(::getpid());
  const std::size_t used[] = {0, 1, 20, 21, 22, 40, 63};
  for (const std::size_t i : used) ASSERT_TRUE(pages.is_read(memory, i, 1)) << i;
  pages.set(2);
  for (const std::size_t i : used) EXPECT_TRUE(pages.is_read(memory, i, 1)) << i;  // kept
  memory.forget();
  std::uint64_t before = memory.system_calls();
  for (const std::size_t i : used) EXPECT_TRUE(pages.is_read(memory, i, 2)) << i;
  EXPECT_EQ(memory.system_calls() - before, 1U);
  EXPECT_TRUE(pages.is_read(memory, 30, 2));
  EXPECT_EQ(memory.system_calls() - before, 2U);
  memory.forget();
  // What is expected besides; what was not used any more is not.
  memory.expect(pages.address(50) + 77);
  memory.expect(pages.address(20));
  before = memory.system_calls();
  EXPECT_TRUE(pages.is_read(memory, 50, 2));
  EXPECT_EQ(memory.system_calls() - before, 1U);
  memory.forget();
  EXPECT_TRUE(pages.is_read(memory, 50, 2));
  EXPECT_EQ(memory.system_calls() - before, 2U);
  EXPECT_TRUE(pages.is_read(memory, 20, 2));
  EXPECT_EQ(memory.system_calls() - before, 3U);
}

TEST(ProcessMemory, WhatCannotBeReadAnyMoreHidesNothing) {
  const Pages pages;
  walk::ProcessMemory memory(::getpid());
  for (std::size_t i = 0; i < Pages::kCount; i += 3) ASSERT_TRUE(pages.is_read(memory, i, 1)) << i;
  pages.set(2);
  for (std::size_t i = 0; i < 60; i += 6) pages.take_away(i);
  memory.forget();
  // What the process itself may not read is read by /proc/PID/mem, if that may be opened.
  for (std::size_t i = 3; i < Pages::kCount; i += 6) EXPECT_TRUE(pages.is_read(memory, i, 2)) << i;
  EXPECT_TRUE(pages.is_read(memory, 61, 2));
}

TEST(ProcessMemory, MoreThanThereIsRoomFor) {
  const Pages pages;
  walk::ProcessMemory memory(::getpid());
  constexpr std::size_t kMany = 5000;
  auto* many = static_cast<std::byte*>(
      ::mmap(nullptr, kMany * Pages::kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  for (std::size_t i = 0; i < kMany; ++i) std::memcpy(many + i * Pages::kPage, &i, sizeof i);
  for (int round = 0; round < 3; ++round) {
    memory.forget();
    for (std::size_t i = 0; i < kMany; ++i) {
      std::size_t value = 0;
      ASSERT_TRUE(memory.read(reinterpret_cast<std::uint64_t>(many) + i * Pages::kPage, &value, sizeof value));
      ASSERT_EQ(value, i);
    }
  }
  EXPECT_TRUE(pages.is_read(memory, 5, 1));
  ::munmap(many, kMany * Pages::kPage);
}

TEST_F(OtherProcess, StandsStillAndGoesOn) {
  const Child child(counting);
  for (int i = 0; i < 5; ++i) {
    auto target = open_process(child.pid());
    ASSERT_TRUE(target) << target.error().text();
    const std::uint64_t counted = board->counter;
    std::this_thread::sleep_for(5ms);
    EXPECT_EQ(board->counter, counted);
    target->release();
    child.expect_running();
  }
}

TEST_F(OtherProcess, ReleasedByAnotherThread) {
  const Child child(counting);
  auto target = open_process(child.pid());
  ASSERT_TRUE(target);
  std::thread([moved = std::move(*target)] {}).join();
  child.expect_running();
}

TEST_F(OtherProcess, ThreadsThatComeAndGo) {
  const Child child(+[] {
    board->ready = 1;
    for (;;) {
      pthread_t threads[4];
      for (pthread_t& thread : threads)
        pthread_create(
            &thread, nullptr,
            [](void*) -> void* {
              ++board->counter;
              return nullptr;
            },
            nullptr);
      for (pthread_t& thread : threads) pthread_join(thread, nullptr);
    }
  });
  for (int i = 0; i < 50; ++i) {
    auto target = open_process(child.pid());
    ASSERT_TRUE(target) << target.error().text();
    EXPECT_GE(target->threads.size(), 1u);
    const std::uint64_t counted = board->counter;
    std::this_thread::sleep_for(500us);
    EXPECT_EQ(board->counter, counted);  // nobody was missed
    target->release();
    if (i % 10 == 0) child.expect_running();
  }
}

TEST_F(OtherProcess, NoSignalIsLost) {
  const Child child(+[] {
    struct sigaction action {};
    action.sa_handler = [](int) { ++board->signals; };
    ::sigaction(SIGRTMIN, &action, nullptr);
    counting();
  });
  constexpr int kSignals = 200;
  for (int i = 0; i < kSignals; ++i) {
    ASSERT_EQ(::sigqueue(child.id(), SIGRTMIN, {}), 0);
    if (i % 4 == 0) {
      ASSERT_TRUE(open_process(child.pid()));
    }
  }
  wait_until([] { return board->signals == kSignals; });
}

TEST_F(OtherProcess, AStoppedOneStaysStopped) {
  const Child child(counting);
  ::kill(child.id(), SIGSTOP);
  ASSERT_EQ(::waitpid(child.id(), nullptr, WUNTRACED), child.id());
  {
    const auto target = open_process(child.pid());
    ASSERT_TRUE(target) << target.error().text();
    WalkEnd end{};
    EXPECT_GT(frames_of(*target, target->threads[0], end), 2u);
  }
  const std::uint64_t counted = board->counter;
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(board->counter, counted);
  ::kill(child.id(), SIGCONT);
  child.expect_running();
}

TEST_F(OtherProcess, AThreadThatCannotStop) {
  const Child child(+[] {
    if (::vfork() == 0) {  // its parent waits, uninterruptible
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ++board->ready;
      for (;;) {
        ++board->counter;
        ::usleep(200);
      }
    }
  });
  {
    const auto target = open_process(child.pid(), {.stop_timeout_ms = 50});
    ASSERT_TRUE(target) << target.error().text();
    ASSERT_EQ(target->threads.size(), 1u);
    EXPECT_EQ(target->problems.size(), 1u);
    EXPECT_NE(target->threads[0].registers.pc().value(), 0u);
    EXPECT_TRUE(target->threads[0].registers.has_sp());
  }
  child.expect_running();
}

TEST_F(OtherProcess, WhatCannotBeOpened) {
  EXPECT_EQ(open_process(2147483646).error().detail, static_cast<std::uint64_t>(ESRCH));
  EXPECT_EQ(open_process(static_cast<std::uint64_t>(::getpid())).error().code, ErrorCode::kUnsupported);
  const Child child(counting);
  ASSERT_EQ(::ptrace(PTRACE_SEIZE, child.id(), nullptr, nullptr), 0);
  const auto target = open_process(child.pid());
  ASSERT_FALSE(target);
  EXPECT_EQ(target.error().code, ErrorCode::kSystem);
  EXPECT_EQ(target.error().detail, static_cast<std::uint64_t>(EPERM));
  EXPECT_EQ(target.error().where, static_cast<std::uint64_t>(::gettid()));  // who traces it
  child.expect_running();
}

// The program's file is replaced by another one while it runs.
TEST_F(OtherProcess, AFileThatIsNoLongerThere) {
  char copy[] = "/tmp/windlass-sleep-XXXXXX";
  const int fd = ::mkstemp(copy);
  ASSERT_GE(fd, 0);
  const std::string bytes = os::read_proc_file("/bin/sleep");
  ASSERT_EQ(::write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  ::fchmod(fd, 0700);
  ::close(fd);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::execl(copy, "sleep", "100", nullptr);
    ::_exit(1);
  }
  const std::string wchan = "/proc/" + std::to_string(pid) + "/syscall";
  const std::string asleep = std::to_string(SYS_clock_nanosleep) + " ";
  wait_until([&] { return os::read_proc_file(wchan).starts_with(asleep); });
  ::unlink(copy);
  const int other = ::open(copy, O_CREAT | O_WRONLY | O_TRUNC, 0700);
  EXPECT_EQ(::write(other, "not this", 8), 8);
  ::close(other);
  {
    const auto target = open_process(static_cast<std::uint64_t>(pid));
    EXPECT_TRUE(target);
    if (target) {
      WalkEnd end{};
      EXPECT_GT(frames_of(*target, target->threads[0], end), 3u);
      // A busybox without rows is left by its frame pointers.
      EXPECT_TRUE(end == WalkEnd::kComplete || end == WalkEnd::kChained) << end_name(end);
    }
  }
  ::unlink(copy);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

}  // namespace
}  // namespace windlass
