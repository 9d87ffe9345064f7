// The real BPF program on this kernel. Skipped only for want of privilege.
#include "profiler/doctor/kernel_types.h"
#include "profiler/doctor/system_trials.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "integration/kernel_side_program.h"
#include "lookup/table/arena.h"
#include "os/proc_file.h"
#include "os/proc_maps.h"
#include "runtimes/manager/shared_table.h"
#include "support/emulated.h"
#include "support/io_uring.h"
#include "support/process_publisher.h"

namespace windlass::profiler {
namespace {

using testing::ProcessPublisher;

// The stack is whole, and exactly: spin?, recurse x (0..depth), main, then glibc's frames below main.
void expect_recursion(const Stack& stack, const Recursion& target, std::size_t depth) {
  ASSERT_EQ(stack.end, WL_END_COMPLETE);
  std::vector<std::uint64_t> pcs;
  for (const std::uint64_t frame : stack.user) {
    pcs.push_back((frame & WL_FRAME_EXACT) != 0 ? frame & ~WL_FRAME_EXACT : frame - 1);
  }
  std::size_t at = 0;
  const bool in_spin = target.spin.contains(pcs[0]);
  if (in_spin) ++at;
  std::size_t levels = 0;
  while (at < pcs.size() && target.recurse.contains(pcs[at])) ++at, ++levels;
  if (in_spin) {
    EXPECT_EQ(levels, depth + 1);
  }
  EXPECT_LE(levels, depth + 1);
  ASSERT_LT(at, pcs.size());
  EXPECT_TRUE(target.main.contains(pcs[at]));
  // __libc_start_call_main, __libc_start_main, _start
  EXPECT_EQ(pcs.size() - at, 4U);
}

void check_recursion(unsigned depth, unsigned rounds, const KernelSideOptions& options) {
  Recursion target(depth, rounds);
  ASSERT_TRUE(target.ready);
  auto side = open_side(target, options);
  ASSERT_NE(side, nullptr);
  ProcessPublisher publisher(*side);
  ASSERT_TRUE(publisher.publish(static_cast<std::uint32_t>(target.pid)));
  std::uint64_t samples = 0, walked = 0;
  for (const auto& [stack, count] : sample(*side, test::emulated() ? 5s : 700ms, 150)) {
    samples += count;
    if (test::emulated() && stack.end == WL_END_NO_TIME) continue;  // it may have time for one walk in 134 ms
    walked += count;
    ASSERT_FALSE(stack.user.empty());
    expect_recursion(stack, target, depth);
  }
  EXPECT_GT(samples, 100U);
  EXPECT_GT(walked, test::emulated() ? 10U : 100U);
  const KernelSideStats stats = side->stats();
  EXPECT_EQ(stats.samples, stats.other_processes + stats.counted + stats.stack_events + stats.raw_events + stats.lost);
  std::uint64_t ends = 0;
  for (const std::uint64_t end : stats.ends) ends += end;
  EXPECT_EQ(stats.samples, stats.other_processes + ends);
  EXPECT_EQ(stats.counted + stats.stack_events, samples);
  EXPECT_EQ(stats.raw_events, 0U);
}

TEST_F(KernelSideTest, RecursionIsWholeAndExact) { check_recursion(60, 20, {}); }

TEST_F(KernelSideTest, DeepRecursionIsWhole) { check_recursion(1500, 200, {}); }

TEST_F(KernelSideTest, DepthLimitIsSaid) {
  Recursion target(100, 100000);
  ASSERT_TRUE(target.ready);
  KernelSideOptions options;
  options.user_frames = 50;
  auto side = open_side(target, options);
  ASSERT_NE(side, nullptr);
  ProcessPublisher publisher(*side);
  ASSERT_TRUE(publisher.publish(static_cast<std::uint32_t>(target.pid)));
  std::size_t deep = 0;
  for (const auto& [stack, count] : sample(*side, 300ms, 100)) {
    if (stack.end != WL_END_DEPTH) continue;
    ++deep;
    EXPECT_EQ(stack.user.size(), 50U);
  }
  EXPECT_GT(deep, 0U);
}

// Each 1,000 instructions that the verifier processes cost the start 1 to 4 ms. It gives up after 1,000,000. Older
// verifiers see fewer states as the same: 6.1's needs 63,371, and 102,819 on AArch64.
TEST_F(KernelSideTest, TheVerifierHasLittleToDo) {
  std::vector<ProgramStats> programs;
  KernelSideOptions options;
  options.program_stats = &programs;
  const auto side = KernelSide::open(options);
  ASSERT_TRUE(side) << side.error().text;
  utsname system{};
  unsigned major = 0, minor = 0;
  ASSERT_EQ(uname(&system), 0);
  ASSERT_EQ(std::sscanf(system.release, "%u.%u", &major, &minor), 2) << system.release;
  const bool as_measured =
      std::string_view(system.machine) == "x86_64" && std::pair(major, minor) >= std::pair(6U, 18U);
  bool sampler = false;
  for (const ProgramStats& program : programs) {
    const bool samples = program.name == "windlass_sample";
    sampler |= samples;
    EXPECT_GT(program.instructions, 0U) << program.name;
    EXPECT_LT(program.instructions, samples ? (as_measured ? 50'000U : 150'000U) : 20'000U) << program.name;
  }
  EXPECT_TRUE(sampler);
}

// The first samples of a command that is held may be raw, where start() has not waited for the sampler.
TEST_F(KernelSideTest, TheSamplerTakesOverFromTheProgramOfTheFirstSamples) {
  Recursion target(60, 20);
  ASSERT_TRUE(target.ready);
  KernelSideOptions options;
  options.frequency = 997;
  options.held = 1;  // as if that was the command: this target is sampled at once
  auto side = open_side(target, options);
  ASSERT_NE(side, nullptr);
  ProcessPublisher publisher(*side);
  ASSERT_TRUE(publisher.publish(static_cast<std::uint32_t>(target.pid)));
  ASSERT_TRUE(side->start().has_value());
  std::uint64_t raw = 0, whole = 0;
  const auto handle = [&](const wl_event_head& head, std::size_t) {
    if (head.type == WL_EVENT_RAW) ++raw;
    if (head.type != WL_EVENT_STACK) return;
    ++whole;
    EXPECT_EQ(reinterpret_cast<const wl_stack_event&>(head).end, WL_END_COMPLETE);
  };
  poll_until(*side, handle, [&] { return side->stats().counted >= 20; });
  side->stop();
  side->poll(0ms, handle);
  const KernelSideStats stats = side->stats();
  EXPECT_GE(stats.counted, 20U);
  EXPECT_EQ(stats.raw_events, raw);
  EXPECT_EQ(stats.stack_events, whole);
  EXPECT_EQ(stats.samples, stats.other_processes + stats.counted + whole + raw + stats.lost);
  EXPECT_EQ(stats.sampler_refusal, 0);
}

// ---- samples that take too long -------------------------------------------------------------------------------------

TEST_F(KernelSideTest, WithoutTimeForWalksSamplesHaveTheirInnermostFrame) {
  Recursion target(60, 20);
  ASSERT_TRUE(target.ready);
  KernelSideOptions options;
  options.largest_share = 0;
  auto side = open_side(target, options);
  ASSERT_NE(side, nullptr);
  ProcessPublisher publisher(*side);
  ASSERT_TRUE(publisher.publish(static_cast<std::uint32_t>(target.pid)));
  for (const auto& [stack, count] : sample(*side, 300ms, 100)) {
    EXPECT_EQ(stack.end, WL_END_NO_TIME);
    ASSERT_EQ(stack.user.size(), 1U);
    EXPECT_NE(stack.user[0] & WL_FRAME_EXACT, 0U);
  }
  const KernelSideStats stats = side->stats();
  EXPECT_GE(stats.ends[WL_END_NO_TIME], 100U);
  EXPECT_EQ(stats.samples, stats.other_processes + stats.ends[WL_END_NO_TIME]);
}

// Each window of time begins with a share. 134 ns are used up by the first walk of a window.
TEST_F(KernelSideTest, EachWindowHasTimeForAWalk) {
  Recursion target(60, 20);
  ASSERT_TRUE(target.ready);
  KernelSideOptions options;
  options.largest_share = 1e-6;
  auto side = open_side(target, options);
  ASSERT_NE(side, nullptr);
  ProcessPublisher publisher(*side);
  ASSERT_TRUE(publisher.publish(static_cast<std::uint32_t>(target.pid)));
  for (const auto& [stack, count] : sample(*side, 700ms, 300)) {
    if (stack.end == WL_END_NO_TIME) continue;
    ASSERT_FALSE(stack.user.empty());
    expect_recursion(stack, target, 60);
  }
  const KernelSideStats stats = side->stats();
  EXPECT_GE(stats.ends[WL_END_COMPLETE], 2U);
  EXPECT_GT(stats.ends[WL_END_NO_TIME], 0U) << "the second of a window";
}

// ---- threads without a user side ------------------------------------------------------------------------------------

TEST_F(KernelSideTest, AWorkerOfIoUringIsWholeAtItsKernelStack) {
  if (!test::IoUring().is_there()) GTEST_SKIP() << "SKIPPED: no io_uring here";
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    test::IoUring ring;
    static char bytes[1 << 20];
    const int zeroes = open("/dev/zero", O_RDONLY);
    for (;;) ring.read(zeroes, bytes, sizeof bytes, 1);
  }
  KernelSideOptions options;
  options.frequency = 999;
  options.all_processes = false;
  options.targets = {static_cast<std::uint32_t>(child)};
  auto side = KernelSide::open(options);
  ASSERT_TRUE(side) << side.error().text;
  std::uint64_t whole = 0, others = 0;
  const auto take = [&](const wl_event_head& head, std::size_t) {
    if (!std::string_view(head.comm).starts_with("iou-wrk")) return;
    const auto& stack = reinterpret_cast<const wl_stack_event&>(head);
    if (test::emulated() && stack.end == WL_END_NO_TIME) return;  // a walk of another program took the window's time
    const bool right = head.type == WL_EVENT_STACK && stack.end == WL_END_KERNEL_ONLY && stack.user_frames == 0 &&
                       stack.kernel_frames != 0;
    ++(right ? whole : others);
  };
  ASSERT_TRUE((*side)->start());
  poll_until(**side, take, [&] { return whole + others >= 3; });
  (*side)->stop();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_GT(whole, 0U);
  EXPECT_EQ(others, 0U);
}

// ---- code of a code manager -----------------------------------------------------------------------------------------

// A running jit_target whose eight stubs are in a code manager from its begin on. It computes in the function that the
// last stub calls.
class Published {
 public:
  Published() {
    pid = fork();
    if (pid == 0) {
      execl(WINDLASS_JIT_TARGET, WINDLASS_JIT_TARGET, "manager", ".", "3600", static_cast<char*>(nullptr));
      _exit(127);
    }
    const auto end = std::chrono::steady_clock::now() + 300s;
    while (!has_table() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(10ms);
  }
  ~Published() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  [[nodiscard]] bool has_table() const {
    const auto maps = os::parse_proc_maps(os::read_proc_file("/proc/" + std::to_string(pid) + "/maps"));
    return std::ranges::any_of(maps, manager::shows_table);
  }
  static Range code(const ProcessPublisher& publisher) {
    for (const wl_mapping& mapping : publisher.mappings())
      if (mapping.kind == WL_MAPPING_MANAGED) return {mapping.begin, mapping.end};
    return {};
  }
  pid_t pid = 0;
};

struct PublishedSide {
  explicit PublishedSide(bool shows_managers) {
    KernelSideOptions options;
    options.frequency = 999;
    options.all_processes = false;
    options.targets = {static_cast<std::uint32_t>(target.pid)};
    auto opened = KernelSide::open(options);
    EXPECT_TRUE(opened) << opened.error().text;
    if (!opened) return;
    side = std::move(*opened);
    publisher.emplace(*side);
    publisher->shows_managers = shows_managers;
    EXPECT_TRUE(publisher->publish(static_cast<std::uint32_t>(target.pid)));
    EXPECT_NE(Published::code(*publisher).end, 0U);
  }
  Published target;
  std::unique_ptr<KernelSide> side;
  std::optional<ProcessPublisher> publisher;
};

TEST_F(KernelSideTest, CodeOfAManagerIsLeftByTheRowsOfItsTable) {
  PublishedSide published(true);
  if (HasFailure()) return;
  KernelSide& side = *published.side;
  const Range code = Published::code(*published.publisher);
  std::uint64_t whole = 0, all = 0;
  for (const auto& [stack, count] : sample(side, 1s, kManySamples)) {
    unsigned stubs = 0;
    for (const std::uint64_t frame : stack.user) stubs += code.contains(frame & ~WL_FRAME_EXACT) ? 1 : 0;
    all += count;
    whole += stack.end == WL_END_COMPLETE && stubs == 8 ? count : 0;
  }
  const KernelSideStats stats = side.stats();
  // The first ones may be from before it has come into its code.
  EXPECT_GE(whole, all - all / 100);
  EXPECT_GE(stats.managed_stacks, all - all / 100);
  EXPECT_LE(stats.raw_events, all / 100);
  EXPECT_GT(all, kManySamples / 2);
}

// As it was before it read them, and is where a table's pages are not in memory.
TEST_F(KernelSideTest, CodeOfAManagerWhoseTableCannotBeReadIsHandedOverRaw) {
  PublishedSide published(false);
  if (HasFailure()) return;
  KernelSide& side = *published.side;
  (void)sample(side, 1s, kManySamples);
  const KernelSideStats stats = side.stats();
  EXPECT_EQ(stats.managed_stacks, 0U);
  EXPECT_GT(stats.raw_events, kManySamples / 2);
  EXPECT_GE(stats.ends[WL_END_NO_ROW], stats.raw_events - stats.raw_events / 100);
}

// A set that was published for another state of the process's code than it has is not used.
TEST_F(KernelSideTest, ASetOfAnotherEpochIsNotUsed) {
  Recursion target(60, 100000);
  ASSERT_TRUE(target.ready);
  auto side = open_side(target);
  ASSERT_NE(side, nullptr);
  ProcessPublisher publisher(*side);
  ASSERT_TRUE(publisher.publish(static_cast<std::uint32_t>(target.pid), 1));
  for (const auto& [stack, count] : sample(*side, 300ms, 50)) EXPECT_EQ(stack.end, WL_END_NO_PROCESS);
  const KernelSideStats stats = side->stats();
  EXPECT_GT(stats.ends[WL_END_NO_PROCESS], 20U);
  EXPECT_EQ(stats.ends[WL_END_COMPLETE], 0U);
}

// The ring is never emptied. Samples that find it full are counted as lost, and only those.
void check_full_ring(bool publish) {
  Recursion target(1500, 200);
  ASSERT_TRUE(target.ready);
  KernelSideOptions options;
  options.ring_bytes = 256 * 1024;
  options.raw_bytes_per_second = 1 << 30;
  auto side = open_side(target, options);
  ASSERT_NE(side, nullptr);
  ProcessPublisher publisher(*side);
  if (publish) {
    ASSERT_TRUE(publisher.publish(static_cast<std::uint32_t>(target.pid)));
  }
  ASSERT_TRUE(side->start().has_value());
  const auto until = std::chrono::steady_clock::now() + 300s;
  do {
    usleep(100'000);
  } while (side->stats().lost < 10 && std::chrono::steady_clock::now() < until);
  side->stop();
  std::uint64_t stacks = 0, raw = 0;
  side->poll(0ms, [&](const wl_event_head& head, std::size_t) {
    const std::uint64_t ticks = std::uint64_t{1} + head.extra;
    stacks += head.type == WL_EVENT_STACK ? ticks : 0;
    raw += head.type == WL_EVENT_RAW ? ticks : 0;
  });
  const KernelSideStats stats = side->stats();
  EXPECT_GE(stats.lost, 10U);
  EXPECT_EQ(stats.stack_events, stacks);
  EXPECT_EQ(stats.raw_events, raw);
  EXPECT_GT(publish ? stacks : raw, 3U);
  EXPECT_EQ(stats.samples, stats.other_processes + stats.counted + stats.stack_events + stats.raw_events + stats.lost);
}

TEST_F(KernelSideTest, StacksThatFindTheRingFullAreCounted) { check_full_ring(true); }

TEST_F(KernelSideTest, RawSamplesThatFindTheRingFullAreCounted) { check_full_ring(false); }

// Nobody empties the ring while three times as many ticks come as its samples have room.
TEST_F(KernelSideTest, TheRateIsLoweredBeforeTheRingIsFull) {
  Recursion target(60, 100000);
  ASSERT_TRUE(target.ready);
  KernelSideOptions options;
  cpu_set_t one;  // each CPU has its own ticks
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(target.pid, sizeof one, &one), 0);
  options.ring_bytes = 1 << 20;
  options.raw_bytes_per_second = 1 << 30;
  auto side = open_side(target, options);
  ASSERT_NE(side, nullptr);
  ASSERT_TRUE(side->start().has_value());
  const auto until = std::chrono::steady_clock::now() + 300s;
  const auto few = [&] {
    const KernelSideStats stats = side->stats();
    const std::uint64_t events = stats.raw_events - stats.left_out;
    return events == 0 || stats.raw_bytes / events * stats.raw_events < 3ULL * options.ring_bytes;
  };
  while (few() && std::chrono::steady_clock::now() < until) usleep(10'000);
  std::uint64_t ticks = 0, left_out = 0, most = 0;
  const auto take = [&](const wl_event_head& head, std::size_t) {
    if (head.type != WL_EVENT_RAW) return;
    ticks += std::uint64_t{1} + head.extra;
    left_out += head.extra;
    most = std::max<std::uint64_t>(most, head.extra);
  };
  const KernelSideStats before = side->stats();
  side->poll(0ms, take);
  EXPECT_EQ(before.lost, 0U);
  EXPECT_GT(before.left_out, before.raw_events / 2);
  EXPECT_GE(before.halvings, 3U);
  // The ring is empty, so the rate is the full one again: behind the first tick, which may stand for others still.
  poll_until(*side, take, [&] { return side->stats().raw_events > before.raw_events + 128; });
  EXPECT_GE(most, 7U);
  most = 0;
  const std::uint64_t so_far = side->stats().raw_events;
  poll_until(*side, take, [&] { return side->stats().raw_events > so_far + 50; });
  EXPECT_EQ(most, 0U);
  side->stop();
  side->poll(0ms, take);
  const KernelSideStats stats = side->stats();
  EXPECT_EQ(stats.lost, 0U);
  EXPECT_EQ(stats.raw_events, ticks);
  EXPECT_EQ(stats.left_out, left_out);
  EXPECT_EQ(stats.samples, stats.other_processes + stats.counted + stats.stack_events + stats.raw_events);
}

// Known stacks that are counted, and new ones.
TEST_F(KernelSideTest, SamplesAtALoweredRateCountForThoseLeftOut) {
  Recursion target(60, 100000);
  ASSERT_TRUE(target.ready);
  auto side = open_side(target);
  ASSERT_NE(side, nullptr);
  ProcessPublisher publisher(*side);
  ASSERT_TRUE(publisher.publish(static_cast<std::uint32_t>(target.pid)));
  side->lower_rate(3);
  std::uint64_t samples = 0;
  for (const auto& [stack, count] : sample(*side, 300ms, kManySamples)) samples += count;
  const KernelSideStats stats = side->stats();
  EXPECT_EQ(stats.counted + stats.stack_events, samples);
  EXPECT_EQ(stats.halvings, 3U);
  EXPECT_EQ(stats.left_out, samples / 8 * 7) << "each stands for eight";
  EXPECT_EQ(samples % 8, 0U);
  // No more than the ticks of the time that it was sampled for.
  timespec used{};
  clockid_t clock{};
  ASSERT_EQ(clock_getcpuclockid(target.pid, &clock), 0);
  ASSERT_EQ(clock_gettime(clock, &used), 0);
  const double seconds = static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
  EXPECT_LT(static_cast<double>(samples), 1.4 * 999 * seconds + 8);
}

// Each event that is handled makes others here.
TEST_F(KernelSideTest, APollEndsWhileEventsGoOnComing) {
  constexpr int kMost = 20'000;  // a ring of this size holds far fewer
  KernelSideOptions options;
  options.all_processes = false;
  options.targets = {static_cast<std::uint32_t>(getpid())};
  options.ring_bytes = 256 * 1024;
  auto opened = KernelSide::open(options);
  ASSERT_TRUE(opened) << opened.error().text;
  int handled = 0;
  const auto make_events = [&](const wl_event_head&, std::size_t) {
    if (++handled >= kMost) return;
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, nullptr, 0);
  };
  make_events({}, 0);
  (*opened)->poll(0ms, make_events);
  EXPECT_GT(handled, 100);
  EXPECT_LT(handled, kMost);
}

// A published set only counts with the epoch of the last exec; children begin with their parent's set.
TEST_F(KernelSideTest, ForkExecAndExitAreTold) {
  KernelSideOptions options;
  options.all_processes = false;
  options.targets = {static_cast<std::uint32_t>(getpid())};
  auto opened = KernelSide::open(options);
  ASSERT_TRUE(opened) << opened.error().text;
  const pid_t pid = fork();
  if (pid == 0) {
    execl("/bin/true", "true", static_cast<char*>(nullptr));
    _exit(1);
  }
  waitpid(pid, nullptr, 0);
  std::vector<std::pair<unsigned, std::uint64_t>> seen;  // type, epoch
  const auto handle = [&](const wl_event_head& head, std::size_t) {
    const auto& event = reinterpret_cast<const wl_process_event&>(head);
    if (head.type == WL_EVENT_FORK && event.address == static_cast<std::uint64_t>(pid)) {
      EXPECT_EQ(head.tgid, static_cast<std::uint32_t>(getpid()));
      seen.emplace_back(head.type, event.epoch);
    } else if (head.tgid == static_cast<std::uint32_t>(pid)) {
      seen.emplace_back(head.type, event.epoch);
    }
  };
  poll_until(**opened, handle, [&] { return seen.size() >= 3; });
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[0].first, static_cast<unsigned>(WL_EVENT_FORK));
  EXPECT_EQ(seen[1].first, static_cast<unsigned>(WL_EVENT_EXEC));
  EXPECT_EQ(seen[2].first, static_cast<unsigned>(WL_EVENT_EXIT));
  EXPECT_NE(seen[0].second, 0U);
  EXPECT_GT(seen[1].second, seen[0].second);
  EXPECT_EQ(seen[2].second, seen[1].second);
}

// At an address of the program's choice: told where the kernel lets a function be hooked.
TEST_F(KernelSideTest, CodeAtAFixedAddressOverKnownCodeIsTold) {
  KernelSideOptions options;
  options.all_processes = false;
  const auto self = static_cast<std::uint32_t>(getpid());
  options.targets = {self};
  auto opened = KernelSide::open(options);
  ASSERT_TRUE(opened) << opened.error().text;
  KernelSide& side = **opened;
  constexpr std::size_t kSize = 1 << 16;
  const auto map_at = [](void* at, int protection, int flags) {
    return mmap(at, kSize, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  };
  void* const code = map_at(nullptr, PROT_READ, 0);
  ASSERT_NE(code, MAP_FAILED);
  const auto begin = reinterpret_cast<std::uint64_t>(code);
  auto module = side.add_module();
  ASSERT_TRUE(module.has_value());
  std::vector<std::uint64_t> epochs;
  const auto handle = [&](const wl_event_head& head, std::size_t) {
    const auto& event = reinterpret_cast<const wl_process_event&>(head);
    if (head.type == WL_EVENT_UNMAP && head.tgid == self && event.address == begin) epochs.push_back(event.epoch);
  };
  const auto kernel = KernelTypes::read();
  const bool hooked = try_hook(kernel ? &*kernel : nullptr) == 0;
  // What the kernel tells, it has put into the ring when the system call returns.
  const auto told = [&](const wl_mapping& known, auto&& change) {
    EXPECT_TRUE(side.publish(self, {&known, 1}, epochs.empty() ? 0 : epochs.back()).has_value());
    const std::size_t before = epochs.size();
    change();
    for (int i = 0; i < 10 && epochs.size() == before; ++i) side.poll(std::chrono::milliseconds(20), handle);
    return epochs.size() != before;
  };
  const wl_mapping file{begin, begin + kSize, 0, *module, WL_MAPPING_FILE};
  wl_mapping generated = file;
  generated.kind = WL_MAPPING_GENERATED;
  const auto as_code = [&] { ASSERT_EQ(map_at(code, PROT_READ | PROT_EXEC, MAP_FIXED), code); };
  const auto as_data = [&] { ASSERT_EQ(map_at(code, PROT_READ, MAP_FIXED), code); };
  EXPECT_EQ(told(file, as_code), hooked);
  EXPECT_FALSE(told(file, as_data)) << "nothing runs there";
  EXPECT_EQ(told(file, [&] { ASSERT_EQ(mprotect(code, kSize, PROT_READ | PROT_EXEC), 0); }), hooked);
  EXPECT_FALSE(told(generated, as_code)) << "made at run time before and after";
  munmap(code, kSize);
}

// Code was unmapped and something else is mapped in its place: the set is stale at once.
TEST_F(KernelSideTest, MappingOverKnownCodeIsTold) {
  KernelSideOptions options;
  options.all_processes = false;
  const auto self = static_cast<std::uint32_t>(getpid());
  options.targets = {self};
  auto opened = KernelSide::open(options);
  ASSERT_TRUE(opened) << opened.error().text;
  KernelSide& side = **opened;
  constexpr std::size_t kSize = 64 << 20;
  void* code = mmap(nullptr, kSize, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(code, MAP_FAILED);
  const auto begin = reinterpret_cast<std::uint64_t>(code);
  auto module = side.add_module();
  ASSERT_TRUE(module.has_value());
  const wl_mapping mapping{begin, begin + kSize, 0, *module, 0};
  ASSERT_TRUE(side.publish(self, {&mapping, 1}, 0).has_value());
  munmap(code, kSize);
  // Not MAP_FIXED: that the kernel looks for room is what shows it. It takes the same, unless another thread was
  // faster.
  void* next = mmap(nullptr, kSize, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_EQ(next, code) << "the kernel put the second mapping elsewhere";
  std::vector<std::uint64_t> epochs;
  const auto handle = [&](const wl_event_head& head, std::size_t) {
    if (head.type == WL_EVENT_UNMAP && head.tgid == self) {
      epochs.push_back(reinterpret_cast<const wl_process_event&>(head).epoch);
    }
  };
  poll_until(side, handle, [&] { return !epochs.empty(); });
  munmap(next, kSize);
  ASSERT_GE(epochs.size(), 1U);
  EXPECT_NE(epochs.back(), 0U);
}

// Tables and sets that nobody uses any more give their memory back.
TEST_F(KernelSideTest, RetiredMappingSetsAreFreed) {
  Recursion target(5, 100000);
  ASSERT_TRUE(target.ready);
  auto side = open_side(target);
  ASSERT_NE(side, nullptr);
  const wl_mapping mapping{0x1000, 0x2000, 0, 0, 0};
  const std::vector<wl_mapping> many(1000, mapping);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(side->publish(static_cast<std::uint32_t>(target.pid), many, 0).has_value());
  const std::uint64_t before = side->arena().bytes_used();
  EXPECT_GE(before, 100 * many.size() * sizeof mapping);
  const auto until = std::chrono::steady_clock::now() + 120s;
  while (side->arena().bytes_used() > before / 50 && std::chrono::steady_clock::now() < until) {
    side->poll(100ms, [](const wl_event_head&, std::size_t) {});
  }
  EXPECT_LE(side->arena().bytes_used(), before / 50);
}

}  // namespace
}  // namespace windlass::profiler
