/* Hand-written code of a library, as musl has it: exported without a size, with a hidden function behind it. */
#if defined(__x86_64__)
#define BRANCH(label) test %edi, %edi; je label
#define CALL(label) call label
#else
#define BRANCH(label) cbz w0, label
#define CALL(label) bl label
#endif
    .text
    .globl asm_exported
    .type asm_exported, %function
asm_exported:
    BRANCH(asm_behind_return)
asm_behind_branch:
    nop
    ret
asm_behind_return:
    CALL(asm_hidden)
asm_behind_call:
    nop
asm_last:
    ret
asm_hidden:
    nop
asm_in_hidden:
    nop
    ret
    .globl asm_next
    .type asm_next, %function
asm_next:
    nop
    ret
    .section .note.GNU-stack, "", %progbits
