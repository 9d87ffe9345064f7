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

# Keeps the CFA in a register that calls need not preserve, across calls of its own helpers, which leave it alone
# (OpenSSL's AES-GCM).
        .globl  asm_private
        .type   asm_private, @function
asm_private:
        .cfi_startproc
        lea     (%rsp), %rax
        .cfi_def_cfa_register %rax
        push    %rbx
        .cfi_offset %rbx, -16
        push    %r12
        .cfi_offset %r12, -24
        and     $-128, %rsp
        mov     %edi, %ebx
        mov     $3, %r12d
1:      call    asm_private_outer
        dec     %r12d
        jnz     1b
        mov     %ebx, %edi
        mov     -16(%rax), %r12
        .cfi_restore %r12
        mov     -8(%rax), %rbx
        .cfi_restore %rbx
        lea     (%rax), %rsp
        .cfi_def_cfa_register %rsp
        mov     %edi, %eax
        ret
        .cfi_endproc
        .size   asm_private, . - asm_private

        .type   asm_private_outer, @function
asm_private_outer:
        .cfi_startproc
        sub     $0x18, %rsp
        .cfi_adjust_cfa_offset 24
        mov     %rax, 8(%rsp)
        mov     %edi, %eax
        call    asm_private_inner
        add     %eax, %ecx
        mov     8(%rsp), %rax
        call    asm_private_inner
        add     $0x18, %rsp
        .cfi_adjust_cfa_offset -24
        ret
        .cfi_endproc
        .size   asm_private_outer, . - asm_private_outer

        .type   asm_private_inner, @function
asm_private_inner:
        .cfi_startproc
        mov     $2, %edx
1:      lea     1(%rcx,%rdx), %ecx
        dec     %edx
        jnz     1b
        ret
        .cfi_endproc
        .size   asm_private_inner, . - asm_private_inner

# The same without unwind information: only what the helper leaves alone leads to where sp was (x264's aligned stacks).
        .globl  asm_aligned
        .type   asm_aligned, @function
asm_aligned:
        mov     %rsp, %r8
        and     $-32, %rsp
        sub     $0x60, %rsp
        mov     %edi, 0x20(%rsp)
        call    asm_private_inner
        sub     $0x40, %rsp
        call    asm_private_inner
        mov     0x60(%rsp), %eax
        mov     %r8, %rsp
        ret
        .size   asm_aligned, . - asm_aligned

# And with where sp was in a slot of the frame.
        .globl  asm_slot
        .type   asm_slot, @function
asm_slot:
        push    %rbx
        push    %rsi
        lea     -0x100(%rsp), %rax
        and     $-128, %rax
        mov     %rsp, %rdx
        mov     %rax, %rsp
        mov     %rdx, 0x50(%rsp)
        mov     %edi, %ebx
        call    asm_leaf
        add     %ebx, %eax
        mov     0x50(%rsp), %rsp
        pop     %rsi
        pop     %rbx
        ret
        .size   asm_slot, . - asm_slot
        .section .note.GNU-stack, "", @progbits
