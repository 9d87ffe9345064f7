# Code as GraalVM's native images compile it at run time: no register is kept for the caller, a `nop` stands behind each
# call, and functions are called through registers.
        .text
        .globl  generated, generated_end
        .p2align 4
generated:                      # long generated(long n, void* generated)
        sub     $0x38, %rsp
        lea     -0x4000(%rsp), %rax
        cmp     %rax, %rdi
        ja      3f
        mov     %rsi, 0x30(%rsp)
        mov     %rdi, 0x28(%rsp)
        cmp     $2, %rdi
        jl      1f
        lea     -1(%rdi), %rdi
        mov     %rsi, %rax
        call    *%rax
        nop
        mov     %rax, 0x20(%rsp)
        mov     0x28(%rsp), %rbx
        mov     0x30(%rsp), %rsi
        lea     -2(%rbx), %rdi
        mov     %rdi, %r12
        mov     %rsi, %rax
        call    *%rax
        nop
        mov     0x20(%rsp), %rbp
        lea     (%rax,%rbp), %r13
        test    $1, %r13
        jz      2f
        mov     %r13, %rax
        add     $0x38, %rsp
        ret
1:      mov     %rdi, %rax
        add     $0x38, %rsp
        ret
2:      mov     0x28(%rsp), %rdi
        mov     0x30(%rsp), %rsi
        sub     $3, %rdi
        jle     1b
        mov     %rsi, %rax
        call    *%rax
        nop
        mov     %rax, %r14
        lea     (%r13,%r14), %rax
        add     $0x38, %rsp
        ret
3:      ud2
generated_end:

# Calls it, and keeps all registers itself.
        .globl  call_generated
        .type   call_generated, @function
call_generated:                 # long call_generated(long n, void* code)
        .cfi_startproc
        push    %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbp, 0
        push    %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbx, 0
        push    %r12
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r12, 0
        push    %r13
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r13, 0
        push    %r14
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r14, 0
        call    *%rsi
        pop     %r14
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r14
        pop     %r13
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r13
        pop     %r12
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r12
        pop     %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
        pop     %rbp
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbp
        ret
        .cfi_endproc
        .size   call_generated, . - call_generated

        .section .note.GNU-stack, "", @progbits
