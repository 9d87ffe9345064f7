# Hand-written code as libraries have it: without any unwind information, with some that is wrong, and with all of it.
        .text

# No unwind information at all.
        .globl  asm_bare
        .type   asm_bare, @function
asm_bare:
        push    %rbx
        push    %rbp
        mov     %rsp, %rbp
        sub     $0x28, %rsp
        mov     %edi, %ebx
        test    %edi, %edi
        jz      1f
        lea     -1(%rdi), %edi
        call    asm_bare
        add     %ebx, %eax
        jmp     2f
1:      mov     $7, %eax
2:      add     $0x28, %rsp
        pop     %rbp
        pop     %rbx
        ret
        .size   asm_bare, . - asm_bare

# None, and registers saved by mov; leaves by a tail jump.
        .globl  asm_moves
        .type   asm_moves, @function
asm_moves:
        sub     $0x18, %rsp
        mov     %r12, 8(%rsp)
        mov     %rbx, (%rsp)
        mov     %edi, %r12d
        mov     $3, %ebx
1:      mov     %r12d, %edi
        call    asm_leaf
        dec     %ebx
        jnz     1b
        mov     %r12d, %edi
        mov     (%rsp), %rbx
        mov     8(%rsp), %r12
        add     $0x18, %rsp
        jmp     asm_leaf
        .size   asm_moves, . - asm_moves

        .type   asm_leaf, @function
asm_leaf:
        lea     5(%rdi,%rdi,2), %eax
        ret
        .size   asm_leaf, . - asm_leaf

# Says nothing of its pushes, as glibc's __mpn_addmul_1.
        .globl  asm_silent
        .type   asm_silent, @function
asm_silent:
        .cfi_startproc
        xor     %eax, %eax
        push    %rbx
        push    %rbp
        mov     %edi, %ebx
        mov     $3, %ebp
1:      add     %ebx, %eax
        dec     %ebp
        jnz     1b
        pop     %rbp
        pop     %rbx
        ret
        .cfi_endproc
        .size   asm_silent, . - asm_silent

# Keeps no unwind information for what follows a jump into the epilogue that paths share.
        .globl  asm_shared
        .type   asm_shared, @function
asm_shared:
        .cfi_startproc
        push    %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbx, 0
        sub     $0x10, %rsp
        .cfi_adjust_cfa_offset 16
        mov     %edi, %ebx
        call    asm_leaf
        test    %ebx, %ebx
        jz      1f
        add     %ebx, %eax
1:      add     $0x10, %rsp
        pop     %rbx
        ret
        .cfi_endproc
        .size   asm_shared, . - asm_shared

# Realigns the stack and keeps the CFA in a register.
        .globl  asm_realigned
        .type   asm_realigned, @function
asm_realigned:
        .cfi_startproc
        push    %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbx, 0
        mov     %rsp, %rbx
        .cfi_def_cfa_register %rbx
        and     $-64, %rsp
        sub     $0x40, %rsp
        call    asm_leaf
        mov     %rbx, %rsp
        .cfi_def_cfa_register %rsp
        pop     %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
        ret
        .cfi_endproc
        .size   asm_realigned, . - asm_realigned
        .section .note.GNU-stack, "", @progbits
