// An i386 program without a C library, made by Clang and LLD on any machine: no headers or libraries of i386 are
// needed. Its every possible stack is known: _start, run, one of the two paths, outer, middle, spin; the signal path
// has the handler and the kernel's way back from it in between.
//
// usage: i386_stacks ROUNDS (0: it stands still in the innermost function's system call)
//        i386_stacks ROUNDS thread: the plain path in a thread, whose stack has other memory in use above it
//        i386_stacks ROUNDS storm: the signal path alone, with next to nothing between the signals
using u32 = unsigned;

#define NOINLINE extern "C" __attribute__((noinline))

asm(R"(
  .text
  .globl _start
  .type _start, @function
_start:
  .cfi_startproc
  .cfi_undefined eip
  movl (%esp), %eax
  leal 4(%esp), %edx
  subl $4, %esp
  pushl %edx
  pushl %eax
  call run
  hlt
  .cfi_endproc
  .size _start, . - _start
)");

// int clone_thread(flags, stack, segment): the new thread is in thread_start.
asm(R"(
  .text
  .type clone_thread, @function
clone_thread:
  .cfi_startproc
  pushl %ebx
  .cfi_adjust_cfa_offset 4
  .cfi_rel_offset ebx, 0
  pushl %esi
  .cfi_adjust_cfa_offset 4
  .cfi_rel_offset esi, 0
  movl 12(%esp), %ebx
  movl 16(%esp), %ecx
  movl 20(%esp), %esi
  movl $120, %eax
  int $0x80
  testl %eax, %eax
  jz thread_start
  popl %esi
  .cfi_adjust_cfa_offset -4
  .cfi_restore esi
  popl %ebx
  .cfi_adjust_cfa_offset -4
  .cfi_restore ebx
  ret
  .cfi_endproc
  .size clone_thread, . - clone_thread
  .type thread_start, @function
thread_start:
  .cfi_startproc
  .cfi_undefined eip
  call thread_main
  hlt
  .cfi_endproc
  .size thread_start, . - thread_start
)");
extern "C" int clone_thread(u32 flags, void* stack, const void* segment);

static inline int system_call(int number, int first, int second, int third, int fourth) {
  int result;
  asm volatile("int $0x80" : "=a"(result) : "a"(number), "b"(first), "c"(second), "d"(third), "S"(fourth) : "memory");
  return result;
}

enum { kExit = 1, kWrite = 4, kPause = 29, kGetPid = 20, kKill = 37, kSigaction = 174, kExitGroup = 252, kUser = 10 };

static volatile u32 sink;
static bool stands_still;
static u32 rounds, work = 20000;

NOINLINE u32 spin(u32 n) {
  if (stands_still) {
    (void)system_call(kWrite, 1, reinterpret_cast<int>("ready"), 5, 0);
    for (;;) (void)system_call(kPause, 0, 0, 0, 0);
  }
  for (u32 i = 0; i < work; ++i) {
    n ^= n << 13;
    n ^= n >> 17;
    n ^= n << 5;
  }
  return n;
}

// Every register that calls preserve is in use, and the frame is large.
NOINLINE u32 middle(u32 n) {
  u32 a = n * 3, b = n ^ 5, c = n + 7;
  asm volatile("" : "+r"(a), "+r"(b), "+r"(c));
  char memory[300];
  asm volatile("" : : "r"(memory) : "memory");
  const u32 inner = spin(n | 1);
  asm volatile("" : : "r"(memory) : "memory");
  return inner + a + b + c;
}

// A frame of its own alignment, of a size that is known at run time only: the frame pointer is in use.
NOINLINE u32 outer(u32 n) {
  __attribute__((aligned(64))) char memory[64];
  void* more = __builtin_alloca(16 + (n & 0xff));
  asm volatile("" : : "r"(memory), "r"(more) : "memory");
  const u32 inner = middle(n + 1);
  asm volatile("" : : "r"(memory), "r"(more) : "memory");
  return inner + 1;
}

NOINLINE void plain_path(u32 n) {
  sink = sink + outer(n);
  asm volatile("");
}

NOINLINE void handler(int signal) {
  sink = sink + outer(static_cast<u32>(signal));
  asm volatile("");
}

// The kernel's, not a C library's.
struct Action {
  void (*call)(int);
  u32 flags;
  void (*restorer)(void);
  u32 mask[2];
};

NOINLINE void signal_path(void) {
  (void)system_call(kKill, system_call(kGetPid, 0, 0, 0, 0), kUser, 0, 0);
  asm volatile("");
}

extern "C" __attribute__((used)) void thread_main(void) {
  for (u32 round = 0; round < rounds; ++round) plain_path(round);
  (void)system_call(kExitGroup, 0, 0, 0, 0);
}

// As C libraries do it: gs leads to the control block at the top of the stack.
static void start_thread(void) {
  constexpr u32 kHalf = 256 * 1024, kControlBlock = 64;
  __attribute__((aligned(4096))) static char memory[2 * kHalf];
  for (u32 i = 0; i < sizeof memory; i += 4096) static_cast<volatile char*>(memory)[i] = 1;
  struct Segment {  // struct user_desc
    u32 number;
    char* base;
    u32 limit, flags;
  };
  constexpr u32 kFirstOfThreads = 12, kWide = 1, kLimitInPages = 1 << 4, kUsable = 1 << 6;
  const Segment segment = {kFirstOfThreads, memory + kHalf, 0xfffff, kWide | kLimitInPages | kUsable};
  constexpr u32 kThread = 0x10000, kShared = 0xf00 /* memory, folder, files, handlers */, kSetTls = 0x80000;
  (void)clone_thread(kThread | kShared | kSetTls, memory + kHalf - kControlBlock, &segment);
  for (;;) (void)system_call(kPause, 0, 0, 0, 0);
}

extern "C" __attribute__((used)) int run(int count, char** arguments) {
  for (const char* digit = count > 1 ? arguments[1] : "0"; *digit != 0; ++digit)
    rounds = rounds * 10 + static_cast<u32>(*digit - '0');
  stands_still = rounds == 0;
  const bool storms = count > 2 && arguments[2][0] == 's';
  if (storms)
    work = 1;
  else if (count > 2)
    start_thread();
  // Without SA_RESTORER the kernel's vdso is the way back, with SA_SIGINFO by rt_sigreturn.
  for (u32 round = 0; round < rounds || stands_still; ++round) {
    const Action action = {handler, round % 2 != 0 ? 4u : 0u, nullptr, {0, 0}};
    (void)system_call(kSigaction, kUser, reinterpret_cast<int>(&action), 0, 8);
    if (!stands_still && !storms) plain_path(round);
    signal_path();
  }
  (void)system_call(kExit, 0, 0, 0, 0);
  return 0;
}
