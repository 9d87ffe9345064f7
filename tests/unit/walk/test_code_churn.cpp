// Threads make code, run it, and put other code with other frames in its place. Meanwhile they and others walk, in
// signal handlers too. Every stack is right, or ends early with a reason.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "support/jit_stub.h"
#include "walk/code_ranges.h"
#include "windlass/jit/code_manager.h"

namespace windlass {
namespace {

using test::JitStub;

#if defined(__SANITIZE_THREAD__)
constexpr bool kHandlersAreLate = true;  // they run at a later instruction than their context says
#else
constexpr bool kHandlersAreLate = false;
#endif

constexpr std::size_t kMaxFrames = 256;
constexpr std::size_t kSlots = 6;
constexpr std::size_t kSlotSize = 4096;

struct Counts {
  std::atomic<std::uint64_t> made, walks, handled, through_stubs, early, early_inside, wrong, unexplained;
};
Counts counts;

struct Stack {
  std::array<std::uint64_t, kMaxFrames> pcs;
  std::size_t size = 0;
  [[nodiscard]] const std::uint64_t* begin() const { return pcs.data(); }
  [[nodiscard]] const std::uint64_t* end() const { return pcs.data() + size; }
};

// What the thread knows of its own stack: below a call of `stub` it is invoke(), whose callers are `outer`.
struct Truth {
  const JitStub* stub = nullptr;
  Stack outer;  // from invoke()'s caller on
  std::uint64_t decoy = 0;
};
thread_local Truth truth;
thread_local volatile bool truth_holds = false;

// Is what was walked right as far as it goes? `inside`: the stub is certainly on the stack.
void judge(const std::uint64_t* pcs, std::size_t size, bool complete, bool inside) {
  counts.walks.fetch_add(1, std::memory_order_relaxed);
  if (!truth_holds) return;
  const JitStub& stub = *truth.stub;
  const std::uint64_t* const end = pcs + size;
  if (std::find(pcs, end, truth.decoy) != end) counts.wrong.fetch_add(1);
  const std::uint64_t* at =
      std::find_if(pcs, end, [&](std::uint64_t pc) { return pc >= stub.begin() && pc < stub.end(); });
  const bool met = at != end;
  if (met && end - at > 2) {
    counts.through_stubs.fetch_add(1, std::memory_order_relaxed);
    const auto rest = static_cast<std::size_t>(end - at) - 2;
    if (rest > truth.outer.size || !std::equal(at + 2, end, truth.outer.begin()) ||
        (complete && rest != truth.outer.size))
      counts.wrong.fetch_add(1);
  } else if (inside || met) {
    (inside ? counts.early_inside : counts.early).fetch_add(1, std::memory_order_relaxed);
    if (complete) counts.unexplained.fetch_add(1);
  }
}

[[gnu::noinline]] void walk_by_backtrace(bool inside) {
  Stack stack;
  stack.size = backtrace(stack.pcs.data(), kMaxFrames, 0);
  judge(stack.begin(), stack.size, false, inside);
}

void walk_from(const Registers& registers, bool inside) {
  Stack stack;
  StackWalker walker(own_process(), registers);
  do stack.pcs[stack.size++] = walker.frame().pc().value();
  while (stack.size < kMaxFrames && walker.step());
  judge(stack.begin(), stack.size, walker.end_reason() == WalkEnd::kComplete, inside);
}

void on_signal(int, siginfo_t*, void* context) {
  const int saved = errno;
  counts.handled.fetch_add(1, std::memory_order_relaxed);
  if (kHandlersAreLate) {
    walk_by_backtrace(false);
    walk_from(capture_registers(), false);
  } else {
    const Registers registers = registers_of(context);
    Stack stack;
    WalkEnd end = WalkEnd::kRunning;
    stack.size = backtrace_from(registers, stack.pcs.data(), kMaxFrames, &end);
    judge(stack.begin(), stack.size, end == WalkEnd::kComplete, false);
    walk_from(registers, false);
  }
  errno = saved;
}

// Called by the stubs. Everything here is certain: the stack goes through the stub, and to its end.
[[gnu::noinline]] void walk_inside(void*) {
  walk_by_backtrace(true);
  walk_from(capture_registers(), true);
}

[[gnu::noinline]] std::uint64_t some_return_address() {
  return reinterpret_cast<std::uint64_t>(__builtin_extract_return_addr(__builtin_return_address(0)));
}

[[gnu::noinline]] void invoke(const JitStub& stub) {
  truth.stub = &stub;
  truth.outer.size = backtrace(truth.outer.pcs.data(), kMaxFrames, 1);
  truth.decoy = some_return_address();
  truth_holds = true;
  stub.call(walk_inside, truth.decoy, nullptr);
  truth_holds = false;
}

// One place of code, used by one thread at a time.
struct Slot {
  std::mutex in_use;
  std::byte* at = nullptr;
};

// How code is made known: a range for each piece, or one manager of all.
class Registry {
 public:
  explicit Registry(CodeManager* manager) : manager_(manager) {}

  // Gives what remove() takes.
  Expected<CodeRangeId> add(const JitStub& stub, bool with_rows) {
    if (manager_ == nullptr) {
      CodeRange range = stub.range();
      if (!with_rows) range.rows.clear();
      return add_own_code(std::move(range));
    }
    const std::vector<FrameRow> rows = with_rows ? stub.rows_inside() : std::vector<FrameRow>();
    const auto added = manager_->add({{stub.begin(), stub.end() - stub.begin(), "stub", 0, rows}});
    if (!added) return Failure(added.error());
    return CodeRangeId{stub.begin()};
  }
  Expected<void> remove(CodeRangeId id) {
    return manager_ != nullptr ? manager_->remove({static_cast<std::uint64_t>(id)}) : retire_own_code(id);
  }

 private:
  CodeManager* manager_;
};

class Churn {
 public:
  Churn(std::byte* room, Registry& registry) : registry_(registry) {
    for (std::size_t i = 0; i < kSlots; ++i) slots_[i].at = room + i * kSlotSize;
  }

  // Makes code and runs it, `rounds` times; with rows, or to be walked by its instructions.
  void make_and_run(unsigned seed, int rounds) {
    std::mt19937 random(seed);
    for (int i = 0; i < rounds; ++i) {
      Slot& slot = slots_[random() % kSlots];
      const std::lock_guard hold(slot.in_use);
      const unsigned words = JitStub::words(1 + random() % 20);
      // The call at the same address, whatever the frame: nothing but the rows says which it is.
      const std::size_t shift = kOwnArchitecture == Architecture::kX86_64 ? 64 - words : 4 * (32 - words / 2);
      const JitStub stub(slot.at + shift, words);
      const auto id = registry_.add(stub, random() % 4 != 0);
      if (!id) {
        ADD_FAILURE() << id.error().text();
        return;
      }
      counts.made.fetch_add(1, std::memory_order_relaxed);
      invoke(stub);
      if (!registry_.remove(*id)) ADD_FAILURE() << "not retired";
    }
  }
  // Walks through one piece of code that stays, while all around it changes.
  void run_only(const JitStub& stub) {
    while (!done_) invoke(stub);
  }
  void finish() { done_ = true; }

 private:
  Registry& registry_;
  std::array<Slot, kSlots> slots_;
  std::atomic<bool> done_ = false;
};

constexpr std::size_t kRoom = (kSlots + 2) * kSlotSize;

void churn_in(std::byte* room, Registry registry) {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ASSERT_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);

  for (auto* count : {&counts.made, &counts.walks, &counts.handled, &counts.through_stubs, &counts.early,
                      &counts.early_inside, &counts.wrong, &counts.unexplained})
    *count = 0;
  Churn churn(room, registry);
  const JitStub lasting(room + kSlots * kSlotSize, JitStub::words(10));
  const JitStub bare(room + (kSlots + 1) * kSlotSize, JitStub::words(30));
  const auto lasting_id = registry.add(lasting, true);
  const auto bare_id = registry.add(bare, false);
  ASSERT_TRUE(lasting_id && bare_id);

  constexpr int kRounds = kHandlersAreLate ? 400 : 3000;
  std::atomic<int> making = 4;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i)
    threads.emplace_back([&churn, &making, i] {
      churn.make_and_run(i, kRounds);
      --making;
    });
  for (const JitStub* stub : {&lasting, &bare}) threads.emplace_back([&churn, stub] { churn.run_only(*stub); });
  // Paced by what is made and not by time: where handlers take longer than the time between two signals, nothing would
  // ever be made. Threads that have ended are not joined yet, so their handles are good.
  for (std::uint64_t next = 0; making != 0; std::this_thread::sleep_for(std::chrono::microseconds(100))) {
    if (counts.made < next) continue;
    next = counts.made + 4;
    for (std::thread& thread : threads) ::pthread_kill(thread.native_handle(), SIGUSR1);
  }
  churn.finish();
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(counts.wrong, 0u);
  EXPECT_EQ(counts.unexplained, 0u);
  EXPECT_EQ(counts.early_inside, 0u);
  EXPECT_GE(counts.through_stubs, 4u * kRounds * 2);
  EXPECT_GT(counts.handled, 100u);
  std::printf("%lu walks, %lu through generated code, %lu signals, %lu stacks ended early in it\n", counts.walks.load(),
              counts.through_stubs.load(), counts.handled.load(), counts.early.load());
  EXPECT_TRUE(registry.remove(*lasting_id));
  EXPECT_TRUE(registry.remove(*bare_id));
}

TEST(CodeChurn, NoStackIsWrong) {
  std::byte* room = JitStub::make_room(kRoom);
  if (room == nullptr) GTEST_SKIP() << "no memory that is writable and executable is given out here";
  churn_in(room, Registry(nullptr));
  EXPECT_EQ(walk::code_grace_period().waiting(), 0u);
  ::munmap(room, kRoom);
}

TEST(CodeChurn, NoStackIsWrongInAManagersCode) {
  std::byte* room = JitStub::make_room(kRoom);
  if (room == nullptr) GTEST_SKIP() << "no memory that is writable and executable is given out here";
  const auto begin = reinterpret_cast<std::uint64_t>(room);
  // Little room, so that what was taken away is used again.
  auto manager =
      CodeManager::create(begin, begin + kRoom, {.functions = kSlots + 2, .shape_bytes = 64 << 10, .name_bytes = 128});
  ASSERT_TRUE(manager) << manager.error().text();
  const auto id = add_own_code(*manager);
  ASSERT_TRUE(id) << id.error().text();
  churn_in(room, Registry(&*manager));
  EXPECT_TRUE(retire_own_code(*id));
  EXPECT_EQ(walk::code_grace_period().waiting(), 0u);
  ::munmap(room, kRoom);
}

}  // namespace
}  // namespace windlass
