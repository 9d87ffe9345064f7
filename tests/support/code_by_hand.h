// Managed methods and funclets written in assembly, in this program: a runtime knows them by their labels, walks by
// their call frame information.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "windlass/managed/exception.h"

namespace windlass::managed {

// A method gets one of these, calls `function` with `next`, and returns 0; if it comes back by a handler, `this`.
struct Call {
  void* function;
  const void* next;
};

#if defined(__x86_64__)
#define WINDLASS_MANAGED_METHOD(name)                                                        \
  asm(".text\n.globl " #name "\n.type " #name ", @function\n" #name                          \
      ":\n.cfi_startproc\n"                                                                  \
      "pushq %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset %rbx, -16\n"                          \
      "subq $16, %rsp\n.cfi_def_cfa_offset 32\n"                                             \
      "movq %rdi, %rbx\nmovq (%rbx), %rax\nmovq 8(%rbx), %rdi\n"                             \
      ".globl " #name "_try\n" #name                                                         \
      "_try:\ncall *%rax\nxorl %eax, %eax\njmp 1f\n"                                         \
      ".globl " #name "_resume\n" #name                                                      \
      "_resume:\nmovq %rbx, %rax\n"                                                          \
      "1: addq $16, %rsp\n.cfi_def_cfa_offset 16\npopq %rbx\n.cfi_def_cfa_offset 8\nret\n"   \
      ".cfi_endproc\n.globl " #name "_end\n" #name "_end:\n.size " #name ", .-" #name "\n"); \
  extern "C" std::uint64_t name(const windlass::managed::Call*);                             \
  extern "C" const char name##_try[], name##_resume[], name##_end[];
#define WINDLASS_FUNCLET(name, target)                                         \
  extern "C" std::uint64_t target(std::uint64_t base, std::uint64_t object);   \
  asm(".text\n.globl " #name "\n.type " #name ", @function\n" #name            \
      ":\n.cfi_startproc\n"                                                    \
      "pushq %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset %rbx, -16\n"            \
      "call " #target                                                          \
      "\npopq %rbx\n.cfi_def_cfa_offset 8\nret\n.cfi_endproc\n"                \
      ".globl " #name "_end\n" #name "_end:\n.size " #name ", .-" #name "\n"); \
  extern "C" const char name[], name##_end[];
#else
#define WINDLASS_MANAGED_METHOD(name)                                                             \
  asm(".text\n.p2align 2\n.globl " #name "\n.type " #name ", %function\n" #name                   \
      ":\n"                                                                                       \
      ".cfi_startproc\nstp x29, x30, [sp, #-32]!\n.cfi_def_cfa_offset 32\n.cfi_offset x29, -32\n" \
      ".cfi_offset x30, -24\nstr x19, [sp, #16]\n.cfi_offset x19, -16\n"                          \
      "mov x19, x0\nldr x9, [x19]\nldr x0, [x19, #8]\n"                                           \
      ".globl " #name "_try\n" #name                                                              \
      "_try:\nblr x9\nmov x0, xzr\nb 1f\n"                                                        \
      ".globl " #name "_resume\n" #name                                                           \
      "_resume:\nmov x0, x19\n"                                                                   \
      "1: ldr x19, [sp, #16]\n.cfi_restore x19\nldp x29, x30, [sp], #32\n.cfi_restore x29\n"      \
      ".cfi_restore x30\n.cfi_def_cfa_offset 0\nret\n.cfi_endproc\n"                              \
      ".globl " #name "_end\n" #name "_end:\n.size " #name ", .-" #name "\n");                    \
  extern "C" std::uint64_t name(const windlass::managed::Call*);                                  \
  extern "C" const char name##_try[], name##_resume[], name##_end[];
#define WINDLASS_FUNCLET(name, target)                                                            \
  extern "C" std::uint64_t target(std::uint64_t base, std::uint64_t object);                      \
  asm(".text\n.p2align 2\n.globl " #name "\n.type " #name ", %function\n" #name                   \
      ":\n"                                                                                       \
      ".cfi_startproc\nstp x29, x30, [sp, #-16]!\n.cfi_def_cfa_offset 16\n.cfi_offset x29, -16\n" \
      ".cfi_offset x30, -8\nbl " #target                                                          \
      "\nldp x29, x30, [sp], #16\n.cfi_restore x29\n"                                             \
      ".cfi_restore x30\n.cfi_def_cfa_offset 0\nret\n.cfi_endproc\n"                              \
      ".globl " #name "_end\n" #name "_end:\n.size " #name ", .-" #name "\n");                    \
  extern "C" const char name[], name##_end[];
#endif

class HandRuntime : public Runtime {
 public:
  // Code in the program never changes.
  std::uint64_t generation() const override { return generation_; }
  Method& add(std::uint64_t id, const void* begin, const void* end, Funclet funclet = Funclet::kNone,
              const Method* parent = nullptr) {
    Method& method = methods_.emplace_back();
    method.begin = reinterpret_cast<std::uint64_t>(begin);
    method.end = reinterpret_cast<std::uint64_t>(end);
    method.id = id;
    method.funclet = funclet;
    method.parent = parent;
    return method;
  }
  const Method* find(std::uint64_t pc) const override {
    for (const Method& method : methods_)
      if (pc >= method.begin && pc < method.end) return &method;
    return nullptr;
  }

 private:
  std::uint64_t generation_ = new_generation();
  std::deque<Method> methods_;
};

}  // namespace windlass::managed
