#include "alloc/sampler.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "alloc/next.h"
#include "alloc/own_stack.h"
#include "alloc/probes.h"
#include "alloc/stacks.h"
#include "base/monotonic.h"
#include "windlass/backtrace.h"
#include "windlass_ends.h"

extern "C" {
[[gnu::section(".probes")]] constinit volatile std::uint16_t otel_memory_alloc_semaphore = 0;
[[gnu::section(".probes")]] constinit volatile std::uint16_t otel_memory_free_semaphore = 0;
}

namespace windlass::alloc {

constinit thread_local Thread thread;
constinit Blocks blocks;

namespace {

constinit Stacks stacks;

// Of the address space. Zero again in a child after fork(), which thereby is another process.
struct Process {
  std::atomic<std::uint32_t> number;
  std::uint32_t tgid;
};

enum class State : std::uint8_t { kClosed, kOpening, kOpen, kRefused };
constinit std::atomic<State> state = State::kClosed;
constinit Process* process = nullptr;
// Without a recording that started the process, all of this is for listeners to the probes.
constinit bool is_recorded = false;
constinit std::uint64_t period = kUsualPeriod;

// As many blocks as a heap of 2 GiB has of the smallest ones, or of samples many more than such a heap has.
bool open_blocks() { return blocks.open(std::size_t{1} << (period <= 1 ? 26 : 20), period <= 1); }

std::uint64_t period_of_environment() {
  const char* const text = std::getenv(kPeriodVariable);
  std::uint64_t number = 0;
  for (const char* at = text; at != nullptr && *at >= '0' && *at <= '9'; ++at)
    number = number * 10 + static_cast<std::uint64_t>(*at - '0');
  return number != 0 ? number : kUsualPeriod;
}

bool open_all() {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const memory = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || madvise(memory, page, MADV_WIPEONFORK) != 0) return false;
  process = static_cast<Process*>(memory);
  const char* const path = std::getenv(kVariable);
  is_recorded = path != nullptr && stacks.open(path);
  period = is_recorded ? stacks.header().period : period_of_environment();
  if (is_recorded) (void)open_blocks();
  return true;
}

// Is there anybody to take samples for? Other threads do without samples while one looks for a recording.
bool is_open() {
  State now = state.load(std::memory_order_acquire);
  if (now == State::kOpen) [[likely]]
    return true;
  // Before libc is ready there is no environment: the few blocks that the dynamic linker allocates are not recorded.
  if (now == State::kClosed && environ != nullptr &&
      state.compare_exchange_strong(now, State::kOpening, std::memory_order_acquire)) {
    now = open_all() ? State::kOpen : State::kRefused;
    state.store(now, std::memory_order_release);
  }
  return now == State::kOpen;
}

std::uint32_t next_process_number() {
  static constinit std::atomic<std::uint32_t> last = 0;  // a child has its parent's
  return (is_recorded ? stacks.header().processes : last).fetch_add(1, std::memory_order_relaxed) + 1;
}

// The address space's number; 0 while another thread gets one.
std::uint32_t process_number() {
  std::uint32_t number = process->number.load(std::memory_order_acquire);
  constexpr std::uint32_t kBusy = ~std::uint32_t{0};
  if (number == 0 && process->number.compare_exchange_strong(number, kBusy, std::memory_order_acquire)) {
    process->tgid = static_cast<std::uint32_t>(getpid());
    number = next_process_number();
    process->number.store(number, std::memory_order_release);
  }
  return number == kBusy ? 0 : number;
}

// False for a thread that cannot have begun yet.
bool begin_thread() {
  const std::uint32_t number = process_number();
  if (number == 0) return false;
  if (thread.process == number) return true;
  const bool is_new = thread.process == 0;
  thread.process = number;
  thread.tid = static_cast<std::uint32_t>(syscall(SYS_gettid));
  thread.random = (monotonic_ns() ^ std::uint64_t{thread.tid} << 40) * 0x9e3779b97f4a7c15ull | 1;
  for (int i = 0; i < 4; ++i) (void)next_random(thread.random);
  if (is_new && period > 1) thread.left += next_distance(thread.random, period);
  return true;
}

std::uint16_t end_of(WalkEnd end) {
  switch (end) {
    case WalkEnd::kComplete: return WL_END_COMPLETE;
    case WalkEnd::kGuessed: return WL_END_GUESSED;
    case WalkEnd::kChained: return WL_END_CHAINED;
    case WalkEnd::kNoModule: return WL_END_NO_MAPPING;
    case WalkEnd::kUnreadable: return WL_END_UNREADABLE_STACK;
    case WalkEnd::kLost: return WL_END_REGISTER_LOST;
    case WalkEnd::kNoProgress: return WL_END_NO_PROGRESS;
    case WalkEnd::kForeign: return WL_END_OTHER_MACHINE;
    case WalkEnd::kBudget: return WL_END_NO_TIME;
    case WalkEnd::kLimit: return WL_END_DEPTH;
    default: return WL_END_NO_ROW;
  }
}

// This library's own frames are no part of the program's stack. They may be between two of it: operator new of
// libstdc++ calls malloc().
extern "C" [[gnu::visibility("hidden")]] const char __ehdr_start, etext;
bool is_own(std::uint64_t pc) {
  const auto begin = reinterpret_cast<std::uint64_t>(&__ehdr_start);
  return pc - begin < reinterpret_cast<std::uint64_t>(&etext) - begin;
}

void add_freed(std::uint32_t record, Weight weight) {
  Sums& sums = stacks.record(record).freed;
  sums.count.fetch_add(weight.count, std::memory_order_relaxed);
  sums.bytes.fetch_add(weight.bytes, std::memory_order_relaxed);
}

struct Sample {
  void* block;
  Weight weight;
  Registers registers;
};

[[gnu::noinline]] void count_sample(const Sample& sample) {
  std::uint64_t pcs[kMaxFrames];
  WalkEnd end = WalkEnd::kComplete;
  const std::size_t all = backtrace_from(sample.registers, pcs, kMaxFrames, &end);
  std::size_t depth = 0;
  for (std::size_t i = 0; i < all; ++i)
    if (!is_own(pcs[i])) pcs[depth++] = pcs[i];
  const std::uint32_t tid = stacks.nearly_full() ? process->tgid : thread.tid;
  const std::uint32_t place = stacks.find({thread.process, process->tgid, tid, end_of(end), {pcs, depth}});
  if (place == 0) {
    stacks.header().lost.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const Weight weight = sample.weight;
  Sums& sums = stacks.record(place).allocated;
  sums.count.fetch_add(weight.count, std::memory_order_relaxed);
  sums.bytes.fetch_add(weight.bytes, std::memory_order_relaxed);
  if (blocks.add(sample.block, place, weight)) return;
  stacks.header().unfollowed.fetch_add(1, std::memory_order_relaxed);
  add_freed(place, weight);
}

void record_sample(void* block, Weight weight) {
  Sample sample{block, weight, capture_registers()};
  const auto count = [](void* at) { count_sample(*static_cast<const Sample*>(at)); };
  if (has_room_for_walk()) {
    count(&sample);
  } else if (!call_on_own_stack(count, &sample)) {
    stacks.header().lost.fetch_add(1, std::memory_order_relaxed);
  }
}

// The block of a sample for listeners alone. Nobody listens in most processes: they get no room for blocks.
void follow_unrecorded(void* block, Weight weight) {
  static constinit std::atomic<State> room = State::kClosed;
  State now = room.load(std::memory_order_acquire);
  if (now == State::kClosed && room.compare_exchange_strong(now, State::kOpening, std::memory_order_acquire)) {
    now = open_blocks() ? State::kOpen : State::kRefused;
    room.store(now, std::memory_order_release);
  }
  if (now == State::kOpen) (void)blocks.add(block, 0, weight);
}

// The probe is on the stack of the allocation, which listeners walk.
[[gnu::noinline]] void take_sample(void* block, std::size_t size, Weight weight) {
  if (is_recorded) record_sample(block, weight);
  if (!sampling_is_listened_to()) return;
  if (!is_recorded) follow_unrecorded(block, weight);
  tell_allocated(block, size, weight.bytes);
}

}  // namespace

void look_closer(void* block, std::size_t size) {
  if (searching_next()) return;  // dlsym() allocates the text of its error
  const int error = errno;
  const State now = state.load(std::memory_order_relaxed);
  if (now == State::kRefused) {
    thread.left = INT64_MAX;
  } else if (!is_open() || !begin_thread()) {
    thread.left = 0;
  } else if (period <= 1) {
    thread.left = -1;
    take_sample(block, size, {1, size});
  } else if (thread.left < 0) {
    thread.left = next_distance(thread.random, period);
    take_sample(block, size, weight_of(size, period, thread.random));
  }
  errno = error;
}

void count_freed(const void* block, std::uint32_t record, Weight weight) {
  if (record != 0) add_freed(record, weight);
  tell_freed(block);
}

}  // namespace windlass::alloc
