// The kinds of calls by which truth.cpp gets to its levels, beside those of truth_levels.h. Each path is called by main
// and leads to level<0, *> through exactly one function of this program, its entrance; what stands between them differs
// from kind to kind. tests/integration/truth_check.cpp lists the pairs.
#pragma once

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#include <cstdarg>
#include <cstring>
#include <ctime>
#include <functional>

#include "truth_levels.h"

[[gnu::noipa]] inline void enter_levels() {
  sink = sink + descend<0>(next_random() | 1);
  asm volatile("");
}

// ---- through pointers of all kinds --------------------------------------------------------------------------------

[[gnu::noipa]] inline void by_pointer() { enter_levels(), touch(nullptr); }
inline void (*volatile pointer)() = by_pointer;
[[gnu::noipa]] inline void in_pointer_path() { pointer(), touch(nullptr); }

struct Base {
  virtual ~Base() = default;
  virtual void call() = 0;
};
struct Derived : Base {
  [[gnu::noipa]] void call() override { enter_levels(), touch(this); }
};
[[gnu::noipa]] inline void in_virtual_path() {
  Derived derived;
  Base* volatile base = &derived;
  base->call();
  touch(base);
}

[[gnu::noipa]] inline void by_lambda() { enter_levels(), touch(nullptr); }
[[gnu::noipa]] inline void in_function_path() {
  int times = 0;
  const std::function<void()> function = [&times] { by_lambda(), ++times; };
  touch(const_cast<std::function<void()>*>(&function));
  function();
  touch(&times);
}

// ---- calls that leave no frame, many, or one of no fixed size -----------------------------------------------------

[[gnu::noipa]] inline void tail_end(std::uint64_t) { enter_levels(), touch(nullptr); }
[[gnu::noipa]] inline void tail_middle(std::uint64_t n) { return tail_end(n + 1); }
[[gnu::noipa]] inline void in_tail_path() { tail_middle(next_random()), touch(nullptr); }

[[gnu::noipa]] inline void recursive(int depth) {
  if (depth == 0)
    enter_levels();
  else
    recursive(depth - 1);
  asm volatile("");
}
[[gnu::noipa]] inline void in_recursive_path() { recursive(20), touch(nullptr); }

[[gnu::noipa]] inline void variadic(int count, ...) {
  std::va_list list;
  va_start(list, count);
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += va_arg(list, double);
  va_end(list);
  touch(&sum);
  enter_levels();
  touch(&sum);
}
[[gnu::noipa]] inline void in_variadic_path() { variadic(3, 1.0, 2.0, 3.0), touch(nullptr); }

// ---- while an exception passes ------------------------------------------------------------------------------------

[[gnu::noipa]] inline void by_cleanup() { enter_levels(), touch(nullptr); }
struct Cleanup {
  ~Cleanup() { by_cleanup(), touch(this); }
};
[[gnu::noipa]] inline void throws_through_cleanup() {
  const Cleanup cleanup;
  throw 1;
}
[[gnu::noipa]] inline void in_cleanup_path() {
  try {
    throws_through_cleanup();
  } catch (int) {
    touch(nullptr);
  }
}

// ---- assembly, with call frame information and without ------------------------------------------------------------

extern "C" {
void described_assembly(void (*call)());
void bare_assembly(void (*call)());
}
#if defined(__x86_64__)
asm(R"(
  .text
  .type described_assembly, @function
described_assembly:
  .cfi_startproc
  push %rbx
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %rbx, 0
  sub $48, %rsp
  .cfi_adjust_cfa_offset 48
  mov %rdi, %rbx
  call *%rbx
  add $48, %rsp
  .cfi_adjust_cfa_offset -48
  pop %rbx
  .cfi_adjust_cfa_offset -8
  .cfi_restore %rbx
  ret
  .cfi_endproc
  .size described_assembly, . - described_assembly
  .type bare_assembly, @function
bare_assembly:
  push %rbx
  sub $32, %rsp
  mov %rdi, %rbx
  call *%rbx
  add $32, %rsp
  pop %rbx
  ret
  .size bare_assembly, . - bare_assembly
)");
#elif defined(__i386__)  // both are described: its code is not followed
asm(R"(
  .text
  .macro assembly name
  .type \name, @function
\name:
  .cfi_startproc
  push %ebx
  .cfi_adjust_cfa_offset 4
  .cfi_rel_offset %ebx, 0
  sub $40, %esp
  .cfi_adjust_cfa_offset 40
  mov 48(%esp), %ebx
  call *%ebx
  add $40, %esp
  .cfi_adjust_cfa_offset -40
  pop %ebx
  .cfi_adjust_cfa_offset -4
  .cfi_restore %ebx
  ret
  .cfi_endproc
  .size \name, . - \name
  .endm
  assembly described_assembly
  assembly bare_assembly
)");
#else
asm(R"(
  .text
  .type described_assembly, %function
described_assembly:
  .cfi_startproc
  stp x29, x30, [sp, #-32]!
  .cfi_def_cfa_offset 32
  .cfi_offset x29, -32
  .cfi_offset x30, -24
  str x19, [sp, #16]
  .cfi_offset x19, -16
  mov x19, x0
  blr x19
  ldr x19, [sp, #16]
  ldp x29, x30, [sp], #32
  .cfi_restore x19
  .cfi_restore x29
  .cfi_restore x30
  .cfi_def_cfa_offset 0
  ret
  .cfi_endproc
  .size described_assembly, . - described_assembly
  .type bare_assembly, %function
bare_assembly:
  stp x29, x30, [sp, #-32]!
  mov x29, sp
  blr x0
  ldp x29, x30, [sp], #32
  ret
  .size bare_assembly, . - bare_assembly
)");
#endif
[[gnu::noipa]] inline void by_described_assembly() { enter_levels(), touch(nullptr); }
[[gnu::noipa]] inline void in_described_path() { described_assembly(by_described_assembly), touch(nullptr); }
[[gnu::noipa]] inline void by_bare_assembly() { enter_levels(), touch(nullptr); }
[[gnu::noipa]] inline void in_bare_path() { bare_assembly(by_bare_assembly), touch(nullptr); }

// ---- a library loaded for the call, bound lazily ------------------------------------------------------------------

[[gnu::noipa]] inline void by_library() { enter_levels(), touch(nullptr); }
// Called by the library by name, so that the dynamic linker looks it up on the way.
extern "C" [[gnu::used, gnu::noipa]] void truth_called_back(void (*call)()) { call(), touch(nullptr); }
[[gnu::noipa]] inline void in_library_path(const char* file) {
  void* library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return;  // it was not brought along
  auto* call = reinterpret_cast<void (*)(void (*)())>(dlsym(library, "truth_library_call"));
  call(by_library);
  dlclose(library);
}

// ---- other stacks -------------------------------------------------------------------------------------------------

// A signal's, on the stack it interrupts.
[[gnu::noipa]] inline void plain_handler(int) { enter_levels(), touch(nullptr); }
[[gnu::noipa]] inline void in_plain_signal_path() { raise(SIGUSR2), touch(nullptr); }

// A thread's: start_thread -> thread_root -> in_plain_path.
[[gnu::noipa]] inline void* thread_root(void*) {
  for (int i = 0; i < 50; ++i) in_plain_path();
  touch(nullptr);
  return nullptr;
}
[[gnu::noipa]] inline void in_thread_path() {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, thread_root, nullptr) == 0) pthread_join(thread, nullptr);
}

// A context's, which returns to the C library's start code for contexts.
inline ucontext_t main_context, other_context;
inline char context_stack[1 << 18];
[[gnu::noipa]] inline void context_root() {
  for (int i = 0; i < 20; ++i) in_plain_path();
  touch(nullptr);
}
[[gnu::noipa]] inline void in_context_path() {
  std::memset(context_stack, 0, sizeof context_stack);  // every page is there
  getcontext(&other_context);
  other_context.uc_stack.ss_sp = context_stack;
  other_context.uc_stack.ss_size = sizeof context_stack;
  other_context.uc_link = &main_context;
  makecontext(&other_context, context_root, 0);
  swapcontext(&main_context, &other_context);
  touch(nullptr);
}

// ---- leaves outside the program -----------------------------------------------------------------------------------

// Chosen by the processor when the program was loaded (IFUNC), through the linkage table.
[[gnu::noipa]] inline void in_copy_path() {
  static char from[1 << 16], to[1 << 16];
  for (std::size_t size : {3u, 100u, 3000u, 60000u}) {
    touch(&size);
    std::memcpy(to, from, size);
    touch(to);
  }
}
// The kernel's own image.
[[gnu::noipa]] inline void in_clock_path() {
  timespec now{};
  for (int i = 0; i < 20; ++i) clock_gettime(CLOCK_MONOTONIC, &now), touch(&now);
}
