// What the real BPF programs hand over of a sample: the kernel's frames and the raw stack. Skipped only for want of
// privilege.
#include <bpf/bpf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "integration/kernel_side_program.h"
#include "profiler/samples/raw_event.h"
#include "support/process_publisher.h"

namespace windlass::profiler {
namespace {

using testing::ProcessPublisher;

// A process that nobody has published: registers and raw stack, never a guess.
TEST_F(KernelSideTest, UnknownProcessIsHandedOverRaw) {
  Recursion target(60, 100000);
  ASSERT_TRUE(target.ready);
  auto side = open_side(target);
  ASSERT_NE(side, nullptr);
  std::uint64_t raw = 0, with_stack = 0;
  auto handle = [&](const wl_event_head& head, std::size_t size) {
    ASSERT_EQ(head.type, WL_EVENT_RAW);
    const auto& event = reinterpret_cast<const wl_raw_event&>(head);
    ASSERT_LE(sizeof event + event.kernel_frames * 8U + event.code_size + event.stack_size, size);
    EXPECT_EQ(event.reason, WL_END_NO_PROCESS);
    ++raw;
    // 60 frames of at least 16 bytes, and the code of the sampled instruction.
    if (event.stack_size > 60 * 16 && event.code_size > 0 && event.code_before < event.code_size) ++with_stack;
  };
  ASSERT_TRUE(side->start().has_value());
  poll_until(*side, handle, [&] { return raw >= kManySamples; });
  side->stop();
  side->poll(0ms, handle);
  EXPECT_GE(raw, kManySamples);
  // A page that the kernel has taken out of the process for a moment cannot be read from the sampling interrupt.
  EXPECT_GE(with_stack * 100, raw * 99);
  EXPECT_EQ(side->stats().ends[WL_END_NO_PROCESS], raw);
}

// Where the kernel put the main thread's stack: it ends there, but for the program's arguments and environment.
std::uint64_t start_of_stack(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string field;
  for (int number = 3; number <= 28; ++number) fields >> field;
  return std::stoull(field);
}

// The first raw stacks of a process that nobody has published.
std::vector<wl_raw_event> raw_events(unsigned depth, const KernelSideOptions& options, std::uint64_t& start,
                                     std::size_t count = 100, KernelSideStats* stats = nullptr) {
  Recursion target(depth, 100000);
  EXPECT_TRUE(target.ready);
  start = start_of_stack(target.pid);
  auto side = open_side(target, options);
  std::vector<wl_raw_event> events;
  if (side == nullptr) return events;
  const auto handle = [&](const wl_event_head& head, std::size_t) {
    if (head.type == WL_EVENT_RAW) events.push_back(reinterpret_cast<const wl_raw_event&>(head));
  };
  EXPECT_TRUE(side->start().has_value());
  poll_until(*side, handle, [&] { return events.size() >= count; });
  side->stop();
  if (stats != nullptr) *stats = side->stats();
  return events;
}

TEST_F(KernelSideTest, RawStacksAreNoLongerThanAskedFor) {
  KernelSideOptions options;
  options.raw_stack_bytes = 8192;
  std::uint64_t start = 0;
  std::uint64_t full = 0;
  for (const wl_raw_event& event : raw_events(1500, options, start)) {
    EXPECT_LE(event.stack_size, 8192U);
    full += event.stack_size == 8192 ? 1 : 0;
  }
  EXPECT_GE(full, 90U);  // at the bottom of the recursion it is all of the stack
}

constexpr unsigned kDeep = 3'200;  // calls: a stack of 200 KiB

// Of a short stack, and of one of 200 KiB.
TEST_F(KernelSideTest, RawStacksEndWhereTheStackDoes) {
  constexpr std::uint64_t kArguments = 512;
  // The ring has room for so many copies of 200 KiB, however late they are read. Later ones may be shorter.
  constexpr std::size_t kInRing = 60;
  KernelSideOptions options;
  options.raw_bytes_per_second = 1 << 30;
  for (const unsigned depth : {5U, kDeep}) {
    SCOPED_TRACE(depth);
    std::uint64_t start = 0, whole = 0, longest = 0;
    std::vector<wl_raw_event> events = raw_events(depth, options, start, kInRing);
    if (events.size() > kInRing) events.resize(kInRing);
    for (const wl_raw_event& event : events) {
      const std::uint64_t end = event.stack_address + event.stack_size;
      EXPECT_LE(end, start + kArguments);
      whole += end == start + kArguments ? 1 : 0;
      longest = std::max<std::uint64_t>(longest, event.stack_size);
    }
    EXPECT_GE(whole, kInRing * 9 / 10);  // a page may be out of the process for a moment
    EXPECT_GE(longest, depth == kDeep ? std::uint64_t{192} << 10 : 0);
  }
}

// At 999 Hz, a CPU has 134 samples in a window of the budget. These bytes are enough for 86 copies of 200 KiB.
TEST_F(KernelSideTest, RawStacksAreShorterBeforeAnyIsRefused) {
  KernelSideOptions options;
  options.raw_bytes_per_second = 128 << 20;
  std::uint64_t start = 0, longest = 0;
  KernelSideStats stats;
  for (const wl_raw_event& event : raw_events(kDeep, options, start, 500, &stats))
    longest = std::max<std::uint64_t>(longest, event.stack_size);
  EXPECT_EQ(stats.raw_refused, 0U);
  EXPECT_GE(longest, std::uint64_t{192} << 10);
}

// ---- the kernel's frames --------------------------------------------------------------------------------------------

// A process that reads from two devices by turns, in one function: samples in the kernel differ in its frames alone.
class Reads {
 public:
  Reads() : pid(fork()) {
    if (pid != 0) return;
    static char room[1 << 16];
    const int zero = ::open("/dev/zero", O_RDONLY), random = ::open("/dev/urandom", O_RDONLY);
    for (int from = zero;; from = from == zero ? random : zero) {
      if (::read(from, room, sizeof room) < 0) _exit(1);
    }
  }
  ~Reads() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  pid_t pid;
};

// A stack is another one with other frames of the kernel; and there are no more of these than asked for.
TEST_F(KernelSideTest, FramesOfTheKernelAreAPartOfTheStack) {
  const Reads target;
  KernelSideOptions options;
  options.frequency = 999;
  options.all_processes = false;
  options.targets = {static_cast<std::uint32_t>(target.pid)};
  options.kernel_frames = 2;
  auto side = KernelSide::open(options);
  ASSERT_TRUE(side) << side.error().text;
  ProcessPublisher publisher(**side);
  ASSERT_TRUE(publisher.publish(static_cast<std::uint32_t>(target.pid)));
  std::map<std::vector<std::uint64_t>, std::uint64_t> in_kernel;  // of each user stack, how many stacks there are
  for (const auto& [stack, count] : sample(**side, 500ms, 200)) {
    EXPECT_LE(stack.kernel, 2U);
    if (stack.kernel == 2) ++in_kernel[stack.user];
  }
  std::uint64_t most = 0;
  for (const auto& [user, stacks] : in_kernel) most = std::max(most, stacks);
  EXPECT_GT(most, 1U);
}

// ---- what is kept of a process --------------------------------------------------------------------------------------

// Whether the map of the BPF programs loaded last has something of a process.
bool has(const std::string& map, std::uint32_t tgid) {
  int last = -1;
  for (__u32 id = 0; bpf_map_get_next_id(id, &id) == 0;) {
    const int fd = bpf_map_get_fd_by_id(id);
    bpf_map_info info{};
    __u32 size = sizeof info;
    if (fd >= 0 && bpf_obj_get_info_by_fd(fd, &info, &size) == 0 && map == info.name) {
      if (last >= 0) ::close(last);
      last = fd;
    } else if (fd >= 0) {
      ::close(fd);
    }
  }
  EXPECT_GE(last, 0) << map;
  std::uint64_t value[sizeof(wl_process) / 8] = {};
  const bool found = bpf_map_lookup_elem(last, &tgid, value) == 0;
  ::close(last);
  return found;
}

TEST_F(KernelSideTest, NothingIsKeptOfAProcessThatEnded) {
  KernelSideOptions options;
  options.all_processes = false;
  options.targets = {static_cast<std::uint32_t>(getpid())};
  auto side = KernelSide::open(options);
  ASSERT_TRUE(side) << side.error().text;
  const wl_mapping mapping{0x1000, 0x2000, 0, 0, 0};
  ASSERT_TRUE((*side)->publish(static_cast<std::uint32_t>(getpid()), {&mapping, 1}, 0).has_value());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    char end = 0;
    ::close(ends[1]);
    _exit(::read(ends[0], &end, 1) == 0 ? 0 : 1);
  }
  ::close(ends[0]);
  const auto tgid = static_cast<std::uint32_t>(pid);
  for (const char* map : {"processes", "epochs", "targets"}) EXPECT_TRUE(has(map, tgid)) << map;
  ::close(ends[1]);
  waitpid(pid, nullptr, 0);
  for (const char* map : {"processes", "epochs", "targets"}) EXPECT_FALSE(has(map, tgid)) << map;
}

// ---- raw stacks with holes ------------------------------------------------------------------------------------------

// A process that spins below a local array whose pages are not there, and where a word above it is.
class SpinnerBelowAHole {
 public:
  static constexpr std::uint64_t kWord = 0x5a5a'1234'5678'9abc;
  SpinnerBelowAHole()
      : shared_(static_cast<std::uint64_t*>(
            mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    pid = fork();
    if (pid == 0) run();
    while (__atomic_load_n(shared_, __ATOMIC_ACQUIRE) == 0) usleep(1000);
  }
  ~SpinnerBelowAHole() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    munmap(shared_, 4096);
  }
  [[nodiscard]] std::uint64_t word_at() const { return *shared_; }
  pid_t pid = 0;

 private:
  [[gnu::noinline]] void run() const {
    volatile std::uint64_t word = kWord;
    spin(reinterpret_cast<std::uint64_t>(&word));
  }
  [[gnu::noinline]] void spin(std::uint64_t word) const {
    alignas(4096) char room[30 * 4096];
    if (madvise(room, sizeof room, MADV_DONTNEED) != 0) _exit(1);
    __atomic_store_n(shared_, word, __ATOMIC_RELEASE);
    for (;;) asm volatile("" : : "r"(room) : "memory");
  }
  std::uint64_t* shared_;
};

// What was never touched of a large local array has no pages: the stack goes on above them.
TEST_F(KernelSideTest, PagesThatAreNotThereAreLeftOut) {
  const SpinnerBelowAHole target;
  KernelSideOptions options;
  options.frequency = 999;
  options.all_processes = false;
  options.targets = {static_cast<std::uint32_t>(target.pid)};
  auto side = KernelSide::open(options);
  ASSERT_TRUE(side) << side.error().text;
  std::uint64_t raw = 0, whole = 0;
  auto handle = [&](const wl_event_head& head, std::size_t size) {
    if (head.type != WL_EVENT_RAW) return;
    const auto event = parse_raw_event(head, size);
    ASSERT_TRUE(event) << event.error().what;
    const MemoryCopy& stack = event->sample.stack;
    ++raw;
    EXPECT_LT(stack.bytes.size(), 25U * 4096);
    std::uint64_t word = 0;
    if (stack.read(target.word_at(), &word, sizeof word) && word == SpinnerBelowAHole::kWord) ++whole;
    // The red zone is part of it (OpenSSL's SHA-256 keeps the old sp there).
    EXPECT_EQ(stack.address, event->sample.registers.sp() - 128);
  };
  ASSERT_TRUE((*side)->start().has_value());
  poll_until(**side, handle, [&] { return raw >= kManySamples; });
  (*side)->stop();
  (*side)->poll(0ms, handle);
  EXPECT_GE(raw, kManySamples);
  EXPECT_GE(whole * 100, raw * 99);
}

TEST_F(KernelSideTest, RawStacksKeepToTheirBudget) {
  Recursion target(60, 100000);
  ASSERT_TRUE(target.ready);
  KernelSideOptions options;
  options.raw_bytes_per_second = 100'000;
  auto side = open_side(target, options);
  ASSERT_NE(side, nullptr);
  const auto begin = std::chrono::steady_clock::now();
  const auto stacks = sample(*side, 500ms, 300);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const KernelSideStats stats = side->stats();
  EXPECT_GT(stats.raw_refused, 0U);
  EXPECT_LT(static_cast<double>(stats.raw_bytes), 100'000 * (took.count() + 2));
  // Nothing is lost over it: what is refused is a truncated stack that says why.
  EXPECT_EQ(stats.samples, stats.other_processes + stats.counted + stats.stack_events + stats.raw_events + stats.lost);
  for (const auto& [stack, count] : stacks) EXPECT_EQ(stack.end, WL_END_NO_PROCESS);
}

}  // namespace
}  // namespace windlass::profiler
