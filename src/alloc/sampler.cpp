#include "alloc/sampler.h"

#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <span>

#include "alloc/kept_stack.h"
#include "alloc/next.h"
#include "alloc/own_stack.h"
#include "alloc/probes.h"
#include "alloc/stacks.h"
#include "base/monotonic.h"
#include "base/pointer_authentication.h"
#include "walk/own/never_unloaded.h"
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
constinit Mappings mappings;

// The first threads of a process have a KeptStack each, later ones share as many.
constexpr std::uint32_t kAlone = 64;

// Of the address space. Zero again in a child after fork(), which thereby is another process.
struct Process {
  std::atomic<std::uint32_t> number;
  std::uint32_t tgid;
  std::atomic<std::uint32_t> threads;  // that have begun, which numbers them
  alignas(4096) KeptStack kept[2 * kAlone];
};

enum class State : std::uint8_t { kClosed, kOpening, kOpen, kRefused };
constinit std::atomic<State> state = State::kClosed;
constinit Process* process = nullptr;
// Without a recording that started the process, all of this is for listeners to the probes.
constinit bool is_recorded = false;
constinit std::uint64_t period = kUsualPeriod;

// As many blocks as a heap of 2 GiB has of the smallest ones, or of samples many more than such a heap has.
bool open_blocks() { return blocks.open(std::size_t{1} << (period <= 1 ? 26 : 20), period); }

std::uint64_t period_of_environment() {
  const char* const text = std::getenv(kPeriodVariable);
  std::uint64_t number = 0;
  for (const char* at = text; at != nullptr && *at >= '0' && *at <= '9'; ++at)
    number = number * 10 + static_cast<std::uint64_t>(*at - '0');
  return number != 0 ? number : kUsualPeriod;
}

bool open_all() {
  void* const memory =
      mmap(nullptr, sizeof(Process), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || madvise(memory, sizeof(Process), MADV_WIPEONFORK) != 0) return false;
  process = static_cast<Process*>(memory);
  walk::find_never_unloaded();  // before the first walk, which other libraries' initialisers may bring
  const char* const path = std::getenv(kVariable);
  is_recorded = path != nullptr && stacks.open(path);
  period = is_recorded ? stacks.header().period : period_of_environment();
  if (is_recorded) (void)(open_blocks() && mappings.open());
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
    now = State::kClosed;
    if (find_next_functions()) {
      blocks.begin();
      now = open_all() ? State::kOpen : State::kRefused;
    }
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
  const std::uint32_t before = process->threads.fetch_add(1, std::memory_order_relaxed);
  thread.number = before < kAlone ? before : kAlone + before % kAlone;
  thread.random = (monotonic_ns() ^ std::uint64_t{thread.tid} << 40) * 0x9e3779b97f4a7c15ull | 1;
  for (int i = 0; i < 4; ++i) (void)next_random(thread.random);
  if (is_new && period > 1) thread.left = next_distance(thread.random, period);
  return true;
}

std::uint8_t end_of(WalkEnd end) {
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
inline std::uint64_t own_begin() { return reinterpret_cast<std::uint64_t>(&__ehdr_start); }
inline std::uint64_t own_end() { return reinterpret_cast<std::uint64_t>(&etext); }
inline bool is_own(std::uint64_t pc) { return pc - own_begin() < own_end() - own_begin(); }

// By the only thread that adds there. A signal handler that comes in between has another stack, and so another record.
inline void add_alone(Sums& sums, Weight weight) {
  sums.count.store(sums.count.load(std::memory_order_relaxed) + weight.count, std::memory_order_relaxed);
  sums.bytes.store(sums.bytes.load(std::memory_order_relaxed) + weight.bytes, std::memory_order_relaxed);
}
inline void add_among_others(Sums& sums, Weight weight) {
  sums.count.fetch_add(weight.count, std::memory_order_relaxed);
  sums.bytes.fetch_add(weight.bytes, std::memory_order_relaxed);
}

inline void add_allocated(Record& record, Weight weight) {
  if (record.shared == 0) [[likely]]
    add_alone(record.allocated, weight);
  else
    add_among_others(record.allocated, weight);
}
inline void add_freed(Record& record, Weight weight) {
  if (record.tid == thread.tid && record.shared == 0) [[likely]]
    add_alone(record.freed, weight);
  else
    add_among_others(record.freed_elsewhere, weight);
}

std::uint64_t page_size() {
  static constinit std::atomic<std::uint64_t> known = 0;
  std::uint64_t size = known.load(std::memory_order_relaxed);
  if (size == 0) known.store(size = getauxval(AT_PAGESZ), std::memory_order_relaxed);
  return size;
}
std::uint64_t end_of_pages(std::uint64_t address) { return (address + page_size() - 1) & ~(page_size() - 1); }

// Of the calling thread, without its frames.
inline Stack new_stack() {
  const bool shared = stacks.nearly_full();
  return {.process = thread.process,
          .tgid = process->tgid,
          .tid = shared ? process->tgid : thread.tid,
          .shared = shared,
          .frames = {}};
}

std::size_t leave_out_own(std::uint64_t* pcs, std::size_t all) {
  return static_cast<std::size_t>(std::remove_if(pcs, pcs + all, is_own) - pcs);
}

void count_ended(const Mapping& mapping) {
  if (mapping.record != 0) add_freed(stacks.record(mapping.record), mapping.weight);
}

bool follow_mapping(const void* begin, std::size_t size, std::uint32_t record, Weight weight) {
  const auto at = reinterpret_cast<std::uint64_t>(begin);
  return mappings.put({at, end_of_pages(at + size), record, weight}, [](const Mapping& old) { count_ended(old); });
}

inline void count_block(void* block, SizeOfSample size, std::uint32_t place, Kind kind) {
  if (place == 0) {
    stacks.header().lost.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  Record& record = stacks.record(place);
  const Weight weight = size.weight(period);
  add_allocated(record, weight);
  const bool follows =
      kind == Kind::kBlock ? blocks.add(block, place, size) : follow_mapping(block, size.word() >> 2, place, weight);
  if (follows) [[likely]]
    return;
  stacks.header().unfollowed.fetch_add(1, std::memory_order_relaxed);
  add_freed(record, weight);
}

[[gnu::noinline]] std::uint32_t find_kept(const KeptStack& kept, Stack stack, std::uint64_t hash) {
  std::uint64_t frames[kMaxFrames];
  stack.frames = {frames, kept.frames(frames)};
  return stacks.find(stack, hash);
}

struct Sample {
  void* block;
  SizeOfSample size;
  Kind kind;
  Registers registers;
};

// Wherever the stack of the registers is.
[[gnu::noinline]] void count_by_registers(const Sample& sample) {
  std::uint64_t pcs[kMaxFrames];
  WalkEnd end = WalkEnd::kComplete;
  const std::size_t all = backtrace_from(sample.registers, pcs, kMaxFrames, &end);
  Stack stack = new_stack();
  stack.end = end_of(end);
  const std::span frames(pcs, leave_out_own(pcs, all));
  mark_interrupted(frames);
  stack.frames = frames;
  count_block(sample.block, sample.size, stacks.find(stack, hash_of_stack(stack)), sample.kind);
}

[[gnu::noinline]] void capture_sample(void* block, SizeOfSample size, Kind kind) {
  Sample sample{block, size, kind, capture_registers()};
  const auto count = [](void* at) { count_by_registers(*static_cast<const Sample*>(at)); };
  if (has_room_for_walk()) {
    count(&sample);
  } else if (!call_on_own_stack(count, &sample)) {
    stacks.header().lost.fetch_add(1, std::memory_order_relaxed);
  }
}

// The usual way: on the thread's own stack, of which most is known from its last sample.
[[gnu::always_inline]] inline bool count_by_kept(void* block, SizeOfSample size, Kind kind,
                                                 const walk::FastWalkState& from) {
  if (!has_room_for_walk()) return false;
  KeptStack& kept = process->kept[thread.number];
  if (!kept.enter(thread.number < kAlone)) return false;
  blocks.expect(block);
  const bool walked = kept.walk(from, own_begin(), own_end());
  std::uint32_t place = 0;
  if (walked) {
    Stack stack = new_stack();
    stack.end = kept.guessed() ? WL_END_GUESSED : WL_END_COMPLETE;
    const std::uint64_t hash = hash_of_stack(kept.hash_of_frames(), stack);
    place = kept.place(hash);
    if (place == 0 || stacks.record(place).hash != hash) [[unlikely]] {
      place = find_kept(kept, stack, hash);
      kept.keep(hash, place);
    }
  }
  kept.leave();
  if (walked) count_block(block, size, place, kind);
  return walked;
}

// The block of a sample for listeners alone. Nobody listens in most processes: they get no room for blocks.
void follow_unrecorded(void* block, SizeOfSample size) {
  static constinit std::atomic<State> room = State::kClosed;
  State now = room.load(std::memory_order_acquire);
  if (now == State::kClosed && room.compare_exchange_strong(now, State::kOpening, std::memory_order_acquire)) {
    now = open_blocks() ? State::kOpen : State::kRefused;
    room.store(now, std::memory_order_release);
  }
  if (now == State::kOpen) (void)blocks.add(block, 0, size);
}

// The state of the function that this one is a part of has its caller.
[[gnu::always_inline]] inline walk::FastWalkState caller_state() {
  const void* const pc = __builtin_extract_return_addr(__builtin_return_address(0));
  // Both architectures save the caller's frame pointer where their own points.
  return {without_authentication(reinterpret_cast<std::uint64_t>(pc)),
          reinterpret_cast<std::uint64_t>(__builtin_dwarf_cfa()),
          *static_cast<const std::uint64_t*>(__builtin_frame_address(0))};
}

// The probe is on the stack of the allocation, which listeners walk.
[[gnu::always_inline]] inline void take_sample(void* block, std::size_t size, Kind kind) {
  const SizeOfSample sample(size, period, thread.random);
  if (is_recorded && !count_by_kept(block, sample, kind, caller_state())) [[unlikely]]
    capture_sample(block, sample, kind);
  if (kind != Kind::kBlock || !sampling_is_listened_to()) return;
  if (!is_recorded) follow_unrecorded(block, sample);
  tell_allocated(block, size, sample.weight(period).bytes);
}

}  // namespace

void look_closer(void* block, std::size_t size, Kind kind) {
  if (searching_next()) return;  // dlsym() allocates the text of its error
  const int error = errno;
  ++thread.looked;
  const State now = state.load(std::memory_order_acquire);
  if (now == State::kRefused) {
    thread.left = SIZE_MAX;
  } else if (!is_open() || !begin_thread()) {
    thread.left = 0;
  } else if (size >= thread.left) {
    thread.left = period <= 1 ? 0 : next_distance(thread.random, period);
    take_sample(block, size, kind);
  } else {
    thread.left -= size;
    if (kind == Kind::kMapping) (void)follow_mapping(block, size, 0, {0, 0});
  }
  errno = error;
}

void mapped(void* begin, std::size_t size) {
  if (must_look_closer(size))
    look_closer(begin, size, Kind::kMapping);
  else
    (void)follow_mapping(begin, size, 0, {0, 0});
}

bool follows_mappings() { return mappings.any(); }

void unmapped(const void* begin, std::size_t size) {
  const auto at = reinterpret_cast<std::uint64_t>(begin);
  if (at % page_size() != 0 || size == 0) return;  // an error of the caller's
  if (!mappings.take(at, end_of_pages(at + size), [](const Mapping& old) { count_ended(old); }))
    stacks.header().unfollowed.fetch_add(1, std::memory_order_relaxed);
}

Ended take_mappings(const void* begin, std::size_t size) {
  Ended ended;
  const auto at = reinterpret_cast<std::uint64_t>(begin);
  (void)mappings.take(at, end_of_pages(at + size), [&](const Mapping& old) {
    if (ended.count == Ended::kMost)
      count_ended(old);
    else
      ended.all[ended.count++] = old;
  });
  return ended;
}

void count_ended(const Ended& ended) {
  for (std::size_t i = 0; i < ended.count; ++i) count_ended(ended.all[i]);
}

void put_back(const Ended& ended) {
  for (std::size_t i = 0; i < ended.count; ++i)
    if (!mappings.put(ended.all[i], [](const Mapping& old) { count_ended(old); })) count_ended(ended.all[i]);
}

void look_for_freed(void* block) {
  std::uint32_t record = 0;
  SizeOfSample size(0);
  if (block != nullptr && block != thread.deleted && blocks.find_and_take(block, record, size))
    count_freed(block, record, size);
}

void count_freed(const void* block, std::uint32_t record, SizeOfSample size) {
  if (record != 0) add_freed(stacks.record(record), size.weight(period));
  tell_freed(block);
}

}  // namespace windlass::alloc
