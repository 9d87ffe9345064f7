#include "walk/own/memory.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "walk/own/own_memory.h"

// Where the kernel put argc: no frame lies above. ld.so's, in libc where the program is static. musl has none.
extern "C" __attribute__((weak)) void* __libc_stack_end;

namespace windlass::walk {
namespace {

constexpr std::uint64_t kPage = 4096;  // the smallest there is
constexpr std::uint64_t kInitialStack = std::uint64_t{128} << 20;
constexpr std::uint64_t kMaxProbed = 1024;  // pages in one go
constexpr std::uint64_t kUserEnd = std::uint64_t{1} << (sizeof(void*) == 8 ? 56 : 32);

// A thread's range in three words that prove each other: written by its own thread, possibly interrupted by a signal
// handler that writes too, or by another thread in the same place.
struct Slot {
  std::atomic<std::uint64_t> low, high, check;

  [[nodiscard]] bool read(std::uint64_t thread, StackRange& range) const {
    range = {low.load(std::memory_order_relaxed), high.load(std::memory_order_relaxed)};
    return check.load(std::memory_order_relaxed) == check_of(thread, range);
  }
  void write(std::uint64_t thread, const StackRange& range) {
    low.store(range.low, std::memory_order_relaxed);
    high.store(range.high, std::memory_order_relaxed);
    check.store(check_of(thread, range), std::memory_order_relaxed);
  }
  static std::uint64_t check_of(std::uint64_t thread, const StackRange& range) {
    return (range.low * 0x9e3779b97f4a7c15) ^ (range.high * 0xc2b2ae3d27d4eb4f) ^ thread;
  }
};

// Two stacks a thread: its own and the one its signal handlers run on.
struct Pair {
  Slot slots[2];
};
constexpr std::size_t kThreads = 1024;
Pair pairs[kThreads];

Pair& pair_of(std::uint64_t thread) { return pairs[(thread >> 6 ^ thread >> 12 ^ thread >> 21) % kThreads]; }

void remember(const StackRange& range) {
  const std::uint64_t thread = thread_pointer();
  Pair& pair = pair_of(thread);
  StackRange old;
  std::size_t place = range.low >> 12 & 1;
  for (std::size_t i = 0; i < 2; ++i) {
    if (!pair.slots[i].read(thread, old) || (old.low < range.high && range.low < old.high)) place = i;
  }
  pair.slots[place].write(thread, range);
}

// The lowest place of the initial stack that has been seen in use: it never shrinks.
std::atomic<std::uint64_t> initial_low = ~std::uint64_t{0};

bool in_initial_stack(std::uint64_t sp, bool live) {
  if (sp >= initial_low.load(std::memory_order_relaxed)) return true;
  if (!live && !probe(sp)) return false;
  initial_low.store(sp, std::memory_order_relaxed);
  return true;
}

}  // namespace

std::uint64_t thread_pointer() {
#if defined(__x86_64__)
  std::uint64_t self;
  asm("movq %%fs:0, %0" : "=r"(self));  // psABI: the first word of the block points to itself
  return self;
#else
  return reinterpret_cast<std::uint64_t>(__builtin_thread_pointer());
#endif
}

bool probe(std::uint64_t address) {
  if (address < kPage || address >= kUserEnd) return false;  // null would mean: no set
  const int before = errno;
  std::uint8_t byte = 0;
  const iovec to{&byte, 1};
  const iovec from{reinterpret_cast<void*>(address), 1};
  bool readable = process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
  if (!readable && errno != EFAULT) {
    // Forbidden here. rt_sigprocmask reads a set before it looks at what to do with it: EFAULT if it cannot, otherwise
    // EINVAL, as there is no such operation. Abseil probes so.
    errno = 0;
    (void)syscall(SYS_rt_sigprocmask, ~0, address & ~std::uint64_t{7}, nullptr, 8);
    readable = errno == EINVAL;
  }
  errno = before;
  return readable;
}

StackRange known_stack(std::uint64_t sp, bool live) {
  if (&__libc_stack_end != nullptr) {
    const auto top = reinterpret_cast<std::uint64_t>(__libc_stack_end);
    if (sp < top && top - sp < kInitialStack)
      return {sp, in_initial_stack(sp, live) ? top + sizeof(std::uint64_t) : sp};
  }
  const std::uint64_t thread = thread_pointer();
  StackRange range;
  for (const Slot& slot : pair_of(thread).slots)
    if (slot.read(thread, range) && sp >= range.low && sp < range.high) return {sp, range.high};
  return {sp, live ? (sp + kPage) & ~(kPage - 1) : sp};
}

bool extend(StackRange& range, std::uint64_t address, std::uint64_t size) {
  if (range.holds(address, size)) return true;
  if (address < range.low || size > kPage || address - range.low >= kMaxProbed * kPage || address >= kUserEnd)
    return false;
  for (std::uint64_t page = range.high & ~(kPage - 1); page < address + size; page += kPage) {
    if (!probe(page)) return false;
    range.high = page + kPage;
  }
  remember({range.low & ~(kPage - 1), range.high});
  return true;
}

bool readable(std::uint64_t address, std::uint64_t size) {
  if (address >= kUserEnd || size > kMaxProbed * kPage) return false;
  for (std::uint64_t page = address & ~(kPage - 1); page < address + size; page += kPage)
    if (!probe(page)) return false;
  return true;
}

WINDLASS_READS_STACKS bool OwnMemory::read(std::uint64_t address, void* to, std::size_t size) const {
  StackRange range = known_stack(reinterpret_cast<std::uint64_t>(__builtin_frame_address(0)), true);
  if (!extend(range, address, size) && !readable(address, size)) return false;
  // Not by memcpy, which sanitizers intercept.
  if (size == sizeof(std::uint64_t) && address % sizeof(std::uint64_t) == 0) {
    const std::uint64_t word = *reinterpret_cast<const volatile std::uint64_t*>(address);
    __builtin_memcpy(to, &word, sizeof word);
    return true;
  }
  auto* out = static_cast<unsigned char*>(to);
  const auto* in = reinterpret_cast<const volatile unsigned char*>(address);
  for (std::size_t i = 0; i < size; ++i) out[i] = in[i];
  return true;
}

}  // namespace windlass::walk
