// Two plugins of the same layout whose frames differ: PAD is a one-byte operand.
#if defined(__x86_64__)
#define STRING_(x) #x
#define STRING(x) STRING_(x)
// The return address is at the same place in both, its row another.
asm(R"(
  .text
  .globl plugin_call
  .type plugin_call, @function
plugin_call:
  .cfi_startproc
  pushq %rbx
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %rbx, 0
  subq $)" STRING(PAD) R"(, %rsp
  .cfi_adjust_cfa_offset )" STRING(PAD) R"(
  movq %rsi, %rax
  callq *%rax
  addq $)" STRING(PAD) R"(, %rsp
  .cfi_adjust_cfa_offset -)" STRING(PAD) R"(
  popq %rbx
  .cfi_adjust_cfa_offset -8
  .cfi_restore %rbx
  ret
  .cfi_endproc
  .size plugin_call, .-plugin_call
)");
#else
extern "C" void plugin_call(void* argument, void (*callback)(void*)) {
  volatile char pad[PAD] = {};
  callback(argument);
  pad[0] = 1;
}
#endif
