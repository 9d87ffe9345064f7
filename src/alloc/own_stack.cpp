#include "alloc/own_stack.h"

#include <link.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>

#include "alloc/next.h"
#include "walk/own/memory.h"

// Calls function(argument) where the stack ends at `top`. With unwind information, so that debuggers see the caller.
// The caller's stack may lie below: gdb takes that for a corrupt stack, except behind the frame of a signal.
extern "C" [[gnu::visibility("hidden")]] void windlass_alloc_call_on(void* top, void (*function)(void*),
                                                                     void* argument);
#if defined(__x86_64__)
asm(R"(
  .text
  .p2align 4
  .globl windlass_alloc_call_on
  .hidden windlass_alloc_call_on
  .type windlass_alloc_call_on, @function
windlass_alloc_call_on:
  .cfi_startproc
  .cfi_signal_frame
  push %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  mov %rsp, %rbp
  .cfi_def_cfa_register %rbp
  mov %rdi, %rsp
  mov %rdx, %rdi
  call *%rsi
  mov %rbp, %rsp
  pop %rbp
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
  .size windlass_alloc_call_on, . - windlass_alloc_call_on
)");
#else
asm(R"(
  .text
  .p2align 4
  .globl windlass_alloc_call_on
  .hidden windlass_alloc_call_on
  .type windlass_alloc_call_on, %function
windlass_alloc_call_on:
  .cfi_startproc
  .cfi_signal_frame
  stp x29, x30, [sp, #-16]!
  .cfi_def_cfa_offset 16
  .cfi_offset x29, -16
  .cfi_offset x30, -8
  mov x29, sp
  .cfi_def_cfa_register x29
  mov sp, x0
  mov x0, x2
  blr x1
  mov sp, x29
  .cfi_def_cfa_register sp
  ldp x29, x30, [sp], #16
  .cfi_restore x29
  .cfi_restore x30
  .cfi_def_cfa_offset 0
  ret
  .cfi_endproc
  .size windlass_alloc_call_on, . - windlass_alloc_call_on
)");
#endif

namespace windlass::alloc {
namespace {

constexpr std::size_t kNeeded = std::size_t{24} << 10;         // the walk, and functions that it interrupts nothing of
constexpr std::size_t kThreadBlock = std::size_t{8} << 10;     // at most, above the thread's pointer and for later TLS
constexpr std::size_t kMostOfMain = std::size_t{8} << 20;      // of the first thread's stack: it may be unlimited
constexpr std::size_t kSmallestStack = std::size_t{16} << 10;  // PTHREAD_STACK_MIN of x86-64

struct FirstThread {
  std::uint64_t pointer = 0, sp = 0, room = 0;  // pointer 0: there is no other thread yet
};
constinit FirstThread first;
// Thread-local memory of the libraries that the program starts with: on the stacks of threads, at their tops.
constinit std::size_t of_thread_locals = 0;
// Of the smallest stack that a thread was started with: the bytes below the thread's pointer that are sure to be there.
constinit std::atomic<std::size_t> thread_room = ~std::size_t{0};

void note_stack(std::size_t size) {
  const std::size_t taken = kNeeded + kThreadBlock + of_thread_locals;
  const std::size_t room = size > taken ? size - taken : 0;
  std::size_t before = thread_room.load(std::memory_order_relaxed);
  while (room < before && !thread_room.compare_exchange_weak(before, room, std::memory_order_relaxed)) continue;
}

[[gnu::constructor]] void find_first_thread() {
  rlimit limit{};
  std::size_t size = kMostOfMain;
  if (getrlimit(RLIMIT_STACK, &limit) == 0) size = std::min<std::size_t>(size, limit.rlim_cur);
  (void)dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void*) {
        for (std::size_t i = 0; i < info->dlpi_phnum; ++i)
          if (info->dlpi_phdr[i].p_type == PT_TLS)
            of_thread_locals += info->dlpi_phdr[i].p_memsz + info->dlpi_phdr[i].p_align;
        return 0;
      },
      nullptr);
  note_stack(std::min(size, std::size_t{2} << 20));  // what glibc gives threads if the stack has no limit
  // Up to a quarter of the stack is the program's arguments and environment.
  first.sp = reinterpret_cast<std::uint64_t>(__builtin_frame_address(0));
  first.room = size / 2 > kNeeded ? size / 2 - kNeeded : 0;
  first.pointer = walk::thread_pointer();
}

// ---- own stacks -----------------------------------------------------------------------------------------------------

constexpr std::size_t kStacks = 64, kStackSize = std::size_t{32} << 10, kFlags = 4096;

// A byte for each stack, nonzero if it is in use; then the stacks.
constinit std::atomic<std::byte*> stacks = nullptr;

std::byte* own_stacks() {
  std::byte* known = stacks.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  constexpr std::size_t kSize = kFlags + kStacks * kStackSize;
  void* const memory = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  // No thread forks while it is on one of them, so none is in use in a child.
  if (madvise(memory, kSize, MADV_WIPEONFORK) == 0 &&
      stacks.compare_exchange_strong(known, static_cast<std::byte*>(memory), std::memory_order_acq_rel))
    return static_cast<std::byte*>(memory);
  munmap(memory, kSize);
  return known;
}

// Numbers from 0; kStacks if all are in use.
std::size_t take_stack(std::byte* memory) {
  const std::size_t from = walk::thread_pointer() >> 12;
  for (std::size_t i = 0; i < kStacks; ++i) {
    const std::size_t number = (from + i) % kStacks;
    if (std::atomic_ref(reinterpret_cast<std::uint8_t&>(memory[number])).exchange(1, std::memory_order_acquire) == 0)
      return number;
  }
  return kStacks;
}

// As the kernel has it, without libc's exceptions.
std::uint64_t set_blocked_signals(std::uint64_t blocked) {
  std::uint64_t before = 0;
  (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &blocked, &before, sizeof blocked);
  return before;
}

constinit Next<int(const pthread_attr_t*, std::size_t*)> next_stack_size("pthread_attr_getstacksize"),
    next_guard_size("pthread_attr_getguardsize");
constinit Next<int(pthread_attr_t*)> next_defaults("pthread_getattr_default_np"), next_destroy("pthread_attr_destroy");

}  // namespace

bool has_room_for_walk() {
  const auto sp = reinterpret_cast<std::uint64_t>(__builtin_frame_address(0));
  const std::uint64_t pointer = walk::thread_pointer();
  if (first.pointer == 0) return true;
  if (pointer == first.pointer) return sp - (first.sp - first.room) < first.room + kMostOfMain;
  return pointer - sp < thread_room.load(std::memory_order_relaxed);
}

bool call_on_own_stack(void (*function)(void*), void* argument) {
  std::byte* const memory = own_stacks();
  if (memory == nullptr) return false;
  const std::uint64_t before = set_blocked_signals(~std::uint64_t{0});
  const std::size_t number = take_stack(memory);
  if (number != kStacks) {
    windlass_alloc_call_on(memory + kFlags + (number + 1) * kStackSize, function, argument);
    std::atomic_ref(reinterpret_cast<std::uint8_t&>(memory[number])).store(0, std::memory_order_release);
  }
  (void)set_blocked_signals(before);
  return number != kStacks;
}

void note_thread(const pthread_attr_t* attributes) {
  auto *const stack_size = next_stack_size.get(), *const guard_size = next_guard_size.get();
  auto *const defaults = next_defaults.get(), *const destroy = next_destroy.get();
  std::size_t size = kSmallestStack, guard = 0;
  pthread_attr_t own{};
  const bool usual = attributes == nullptr;
  if (usual && defaults != nullptr && destroy != nullptr && defaults(&own) == 0) attributes = &own;
  if (attributes != nullptr && stack_size != nullptr && guard_size != nullptr) {
    (void)stack_size(attributes, &size);
    (void)guard_size(attributes, &guard);
  }
  if (usual && attributes != nullptr) (void)destroy(&own);
  note_stack(size > guard ? size - guard : 0);
}

}  // namespace windlass::alloc
