/* Hand-written code as real programs have it: with and without sizes, with unnamed code behind it. */
    .text
    .balign 64
    .globl asm_with_size
    .type asm_with_size, @function
asm_with_size:
    nop
    ret
    .size asm_with_size, . - asm_with_size
    .set asm_size_of_sized, . - asm_with_size
    .skip 32

    .balign 64
asm_without_size: /* no .type, no .size: names what follows it */
    nop
    nop
    ret

    .balign 64
    .type asm_before_unnamed, @function
asm_before_unnamed: /* without a size, and a function without a symbol begins behind it: only its FDE knows */
    ret
    .balign 16
    .set asm_offset_of_unnamed, . - asm_before_unnamed
    .cfi_startproc
    nop
    nop
    ret
    .cfi_endproc
    .section .note.GNU-stack, "", @progbits
