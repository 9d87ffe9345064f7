#include "walk/own/memory.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/pages.h"
#include "walk/own/modules.h"
#include "walk/own/own_memory.h"
#include "walk/own_modules.h"

// Where the kernel put argc: no frame lies above. ld.so's, in libc where the program is static. musl has none.
extern "C" __attribute__((weak)) void* __libc_stack_end;

namespace windlass::walk {
namespace {

constexpr std::uint64_t kInitialStack = std::uint64_t{128} << 20;
constexpr std::uint64_t kMaxProbed = 4096;  // pages of one stack
constexpr std::size_t kBatch = 256;         // pages a system call
constexpr std::uint64_t kUserEnd = std::uint64_t{1} << (sizeof(void*) == 8 ? 56 : 32);

// A thread's range in three words that prove each other. The thread itself writes them. A signal handler that writes
// too may interrupt it, and another thread may write to the same place.
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

// With what is known of the same stack already.
void remember(StackRange range) {
  const std::uint64_t thread = thread_pointer();
  Pair& pair = pair_of(thread);
  StackRange old;
  std::size_t place = range.low >> 12 & 1;
  for (std::size_t i = 0; i < 2; ++i) {
    const bool known = pair.slots[i].read(thread, old);
    const bool same = known && old.low <= range.high && range.low <= old.high;
    if (same) range = {std::min(range.low, old.low), std::max(range.high, old.high)};
    if (!known || same) place = i;
    if (same) break;
  }
  pair.slots[place].write(thread, range);
}

// True if the range exists as long as the thread. A thread's own stack has the thread control block at its top
// (Drepper, "ELF handling for thread-local storage", 3.4.6; musl too), so a range with the block does. Another stack,
// for example a coroutine's, may have been unmapped since it was walked.
bool outlives_walks(const StackRange& range, std::uint64_t thread) {
  return range.low <= thread && thread < range.high;
}

// The lowest place of the initial stack that has been seen in use: it never shrinks.
std::atomic<std::uint64_t> initial_low = ~std::uint64_t{0};

[[gnu::hot]] bool in_initial_stack(std::uint64_t sp, bool live) {
  if (sp >= initial_low.load(std::memory_order_relaxed)) return true;
  if (!live && !probe(sp)) return false;
  initial_low.store(sp, std::memory_order_relaxed);
  return true;
}

}  // namespace

[[gnu::hot]] std::uint64_t thread_pointer() {
#if defined(__x86_64__)
  std::uint64_t self;
  asm("movq %%fs:0, %0" : "=r"(self));  // psABI: the first word of the block points to itself
  return self;
#else
  return reinterpret_cast<std::uint64_t>(__builtin_thread_pointer());
#endif
}

bool probe(std::uint64_t address) {
  if (address < kSmallestPage || address >= kUserEnd) return false;  // null would mean: no set
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

[[gnu::hot]] StackRange known_stack(std::uint64_t sp, bool live) {
  if (&__libc_stack_end != nullptr) {
    const auto top = reinterpret_cast<std::uint64_t>(__libc_stack_end);
    if (sp < top && top - sp < kInitialStack)
      return {sp, in_initial_stack(sp, live) ? top + sizeof(std::uint64_t) : sp};
  }
  const std::uint64_t thread = thread_pointer();
  StackRange range;
  for (const Slot& slot : pair_of(thread).slots)
    if (slot.read(thread, range) && sp >= range.low && sp < range.high && (live || outlives_walks(range, thread)))
      return {sp, range.high};
  return {sp, live ? (sp + kSmallestPage) & ~(kSmallestPage - 1) : sp};
}

namespace {

// The number of readable pages from `page` on, at most `count`, before the first that is not readable. One system call
// probes up to kBatch pages, and tells how many it has read.
[[gnu::noinline]] std::uint64_t readable_pages(std::uint64_t page, std::uint64_t count) {
  if (count == 1) return probe(page) ? 1 : 0;
  iovec from[kBatch];
  std::uint8_t bytes[kBatch];
  const int before = errno;
  const std::size_t size = std::min<std::uint64_t>(count, kBatch);
  for (std::size_t i = 0; i < size; ++i) from[i] = {reinterpret_cast<void*>(page + i * kSmallestPage), 1};
  const iovec to{bytes, size};
  const ssize_t read = process_vm_readv(getpid(), &to, 1, from, size, 0);
  const bool forbidden = read < 0 && errno != EFAULT;
  errno = before;
  if (forbidden) return probe(page) ? 1 : 0;
  return read > 0 ? static_cast<std::uint64_t>(read) : 0;
}

// The number of pages to probe beyond the page that a frame needs, so that the first walk of a deep stack takes few
// system calls. At most up to the thread's control block.
std::uint64_t probe_ahead(const StackRange& range, std::uint64_t page) {
  const std::uint64_t top = thread_pointer();
  if (top < page || top - range.low >= kMaxProbed * kSmallestPage) return 0;
  return std::min((top - page) / kSmallestPage + 1,
                  std::clamp<std::uint64_t>(4 * (page - range.low) / kSmallestPage, 16, kBatch));
}

}  // namespace

bool extend(StackRange& range, std::uint64_t address, std::uint64_t size) {
  if (range.holds(address, size)) return true;
  if (address < range.low || size > kSmallestPage || address - range.low >= kMaxProbed * kSmallestPage ||
      address >= kUserEnd)
    return false;
  // A walk that began further up knows the rest.
  const std::uint64_t thread = thread_pointer();
  StackRange known;
  for (const Slot& slot : pair_of(thread).slots)
    if (slot.read(thread, known) && range.high >= known.low && range.high < known.high && outlives_walks(known, thread))
      range.high = known.high;
  for (std::uint64_t page = range.high & ~(kSmallestPage - 1); page < address + size; page = range.high) {
    const std::uint64_t needed = (address + size - page + kSmallestPage - 1) / kSmallestPage;
    const std::uint64_t found = readable_pages(page, std::max(needed, probe_ahead(range, page)));
    if (found == 0) return false;
    range.high = page + found * kSmallestPage;
  }
  remember({range.low & ~(kSmallestPage - 1), range.high});
  return true;
}

bool readable(std::uint64_t address, std::uint64_t size) {
  if (address >= kUserEnd || size > kMaxProbed * kSmallestPage) return false;
  for (std::uint64_t page = address & ~(kSmallestPage - 1), count = 0; page < address + size;
       page += count * kSmallestPage) {
    count = readable_pages(page, (address + size - page + kSmallestPage - 1) / kSmallestPage);
    if (count == 0) return false;
  }
  return true;
}

WINDLASS_READS_STACKS void copy_own(std::uint64_t address, void* to, std::size_t size) {
  // Not by memcpy, which sanitizers intercept.
  auto* out = static_cast<unsigned char*>(to);
  std::size_t done = 0;
  if (address % sizeof(std::uint64_t) == 0) {
    for (; size - done >= sizeof(std::uint64_t); done += sizeof(std::uint64_t)) {
      const std::uint64_t word = *reinterpret_cast<const volatile std::uint64_t*>(address + done);
      __builtin_memcpy(out + done, &word, sizeof word);
    }
  }
  const auto* in = reinterpret_cast<const volatile unsigned char*>(address);
  for (; done < size; ++done) out[done] = in[done];
}

const std::byte* OwnMemory::in_place(std::uint64_t address, std::size_t size) const {
  const auto here = reinterpret_cast<std::uint64_t>(__builtin_frame_address(0));
  StackRange range = known_stack(here, true);
  bool known = range.holds(address, size);
  if (!known) {
    StackRange other = known_stack(address, false);  // what a signal handler on a stack of its own has interrupted
    known = other.holds(address, size) || extend(range, address, size) || extend(other, address, size);
  }
  return known ? reinterpret_cast<const std::byte*>(address) : nullptr;
}

bool OwnMemory::read(std::uint64_t address, void* to, std::size_t size) const {
  const auto here = reinterpret_cast<std::uint64_t>(__builtin_frame_address(0));
  StackRange range = known_stack(here, true);
  bool known = range.holds(address, size);
  if (!known) {
    StackRange other = known_stack(address, false);  // what a signal handler on a stack of its own has interrupted
    known = other.holds(address, size) || always_readable(address, size) || extend(range, address, size) ||
            (size == sizeof(std::uint64_t) ? extend(other, address, size) : readable(address, size));
  }
  if (known) copy_own(address, to, size);
  return known;
}

}  // namespace windlass::walk
