# Functions of every shape that code synthesis has to follow. Each is entered at snippet_NAME; what follows it up to
# the next belongs to it. Position-independent; nothing outside is called.
  .text
  .balign 64
  .globl snippets_begin
snippets_begin:

  .macro snippet name
  .balign 16
  .globl snippet_\name
snippet_\name:
  .endm

snippet helper                 # keeps the convention, uses every preserved register
  pushq %rbx
  pushq %r12
  xorl %ebx, %ebx
  movl $5, %r12d
  leaq (%rbx,%r12), %rax
  popq %r12
  popq %rbx
  ret

snippet framed
  pushq %rbp
  movq %rsp, %rbp
  pushq %r15
  pushq %rbx
  subq $40, %rsp
  movq %rdi, -48(%rbp)
  xorl %ebx, %ebx
  movl $7, %r15d
  call snippet_helper
  leaq -16(%rbp), %rsp
  popq %rbx
  popq %r15
  popq %rbp
  ret

snippet frameless
  endbr64
  pushq %r14
  pushq %rbp
  pushq %rbx
  subq $16, %rsp
  movq %rdi, %rbp
  movq %rsi, %rbx
  movl $1, %r14d
  call snippet_helper
  addq $16, %rsp
  movq %rbp, %rax
  popq %rbx
  popq %rbp
  popq %r14
  rep ret

snippet leave_and_enter
  enter $32, $0
  movq %rbx, -8(%rbp)
  movl $3, %ebx
  cmpl $2, %ebx
  cmoveq %rbx, %rax
  movq -8(%rbp), %rbx
  leave
  ret $16

snippet red_zone               # saves below sp
  movq %rbx, -8(%rsp)
  movq %r13, -16(%rsp)
  movl $9, %ebx
  leal 1(%rbx), %r13d
  movl %r13d, %eax
  movq -16(%rsp), %r13
  movq -8(%rsp), %rbx
  ret

snippet shrink_wrapped         # only one way pushes
  testl %edi, %edi
  jne 1f
  pushq %rbx
  movl $2, %ebx
  call snippet_helper
  popq %rbx
1:
  ret

snippet tail_jump
  subq $8, %rsp
  call snippet_helper
  addq $8, %rsp
  jmp snippet_helper

snippet jump_by_local           # a tail jump to what lay in the frame
  pushq %rbx
  subq $32, %rsp
  leaq snippet_helper(%rip), %rax
  movq %rax, (%rsp)
  movl $1, %ebx
  movq (%rsp), %rax
  addq $32, %rsp
  popq %rbx
  jmp *%rax

snippet realigned              # GCC's for frames aligned above 16: the CFA is in r10, then in memory
  leaq 8(%rsp), %r10
  andq $-64, %rsp
  pushq -8(%r10)
  pushq %rbp
  movq %rsp, %rbp
  pushq %r12
  pushq %r10
  pushq %rbx
  subq $104, %rsp
  movl $4, %ebx
  movl $6, %r12d
  call snippet_helper
  addq $104, %rsp
  popq %rbx
  popq %r10
  popq %r12
  popq %rbp
  leaq -8(%r10), %rsp
  ret

snippet sp_in_memory           # as OpenSSL's assembly keeps it
  movq %rsp, %rax
  pushq %rbx
  pushq %rbp
  pushq %r15
  subq $192, %rsp
  andq $-64, %rsp
  movq %rax, 152(%rsp)
  xorl %ebx, %ebx
  xorl %ebp, %ebp
  movl $8, %r15d
  movq 152(%rsp), %rsi
  movq -24(%rsi), %r15
  movq -16(%rsi), %rbp
  movq -8(%rsi), %rbx
  leaq (%rsi), %rsp
  ret

snippet variable_size          # alloca
  pushq %rbp
  movq %rsp, %rbp
  pushq %rbx
  subq $8, %rsp
  movl $96, %eax
  xorl %edx, %edx
  leaq (%rax,%rdx), %rcx
  andq $-16, %rcx
  subq %rcx, %rsp
  movq %rsp, %rbx
  movq %rax, (%rbx)
  movq -8(%rbp), %rbx
  leave
  ret

snippet jump_table
  pushq %rbx
  movl %edi, %ebx
  andl $3, %edi
  leaq 9f(%rip), %rdx
  movslq (%rdx,%rdi,4), %rax
  addq %rdx, %rax
  notrack jmp *%rax
1:
  movl $1, %eax
  popq %rbx
  ret
2:
  movl $2, %eax
3:
  popq %rbx
  ret
9:
  .long 1b - 9b, 2b - 9b, 3b - 9b, 1b - 9b

snippet thunk                  # a retpoline's
  leaq snippet_helper(%rip), %rax
  call 1f
2:
  pause
  lfence
  jmp 2b
1:
  movq %rax, (%rsp)
  ret

snippet takes_pc
  pushq %rbx
  call 1f
1:
  popq %rbx
  movq %rbx, %rax
  popq %rbx
  ret

snippet string_and_flags
  pushfq
  pushq %rbx
  leaq -64(%rsp), %rsp
  movq %rsp, %rdi
  movl $4, %ecx
  xorl %eax, %eax
  rep stosq
  movl $2, %ecx
1:
  xchgq %rbx, %rdx
  loop 1b
  jrcxz 2f
  ud2
2:
  addq $64, %rsp
  popq %rbx
  popfq
  ret

snippet stack_probe            # -fstack-clash-protection
  pushq %rbp
  leaq -12288(%rsp), %r11
1:
  subq $4096, %rsp
  orq $0, (%rsp)
  cmpq %r11, %rsp
  jne 1b
  movl $1, %ebp
  addq $12288, %rsp
  popq %rbp
  ret

snippet own_return             # the return address taken off and jumped to, or pushed again (vfork)
  popq %rdx
  movl $1, %eax
  pushq %rdx
  testl %eax, %eax
  popq %rcx
  jmp *%rcx

snippet unwritten_pushes       # what assembly without notes does (glibc's __mpn_addmul_1)
  pushq %rbx
  pushq %rbp
  movl $3, %ecx
  movl $1, %ebp
1:
  leaq (%rbp,%rcx), %rbx
  decl %ecx
  jne 1b
  popq %rbp
  popq %rbx
  ret

  .balign 16
resolver_stub:
  pushq got(%rip)
  jmpq *got+8(%rip)
  nopl 0(%rax)
snippet linkage                # lazy binding as lld lays it out
  jmpq *got+16(%rip)
linkage_push:
  pushq $0
  jmp resolver_stub
  .balign 16
resolver:
  pushq %rbx
  movl $1, %ebx
  popq %rbx
  addq $16, %rsp
  jmp snippet_helper
  .balign 8
got:
  .quad 0, resolver - snippets_begin, linkage_push - snippets_begin

snippet scaled_index           # sp by an index that the code has made a constant
  pushq %rbx
  subq $48, %rsp
  movl $3, %ecx
  leaq 24(%rsp,%rcx,8), %rsp
  movl $2, %ecx
  xorl %eax, %eax
  popq %rbx
  ret

snippet never_returns          # only the way in tells; tested with the function's start known
  pushq %rbp
  pushq %rbx
  subq $24, %rsp
  movq %rdi, %rbx
  movl $1, %ebp
  call snippet_helper
  movq %rbx, %rdi
1:
  jmp 1b

  .globl snippets_end
snippets_end:
  .section .note.GNU-stack,"",@progbits
