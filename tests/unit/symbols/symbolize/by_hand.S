/* Symbols such as assembly leaves them, and stubs of 8 bytes. The wl_ ones stand where a test looks; they have no size. */
.text
wl_code:
  /* A label and a function of one extent. */
.globl aa, a_function
aa:
a_function:
.type a_function, @function
.type aa, @notype
  .skip 64, 0x90
.size aa, 64
.size a_function, 64

  /* A mapping mark within a function, as AArch64's and RISC-V's assemblers leave them. */
with_marks:
.type with_marks, @function
  .skip 32, 0x90
"$x":
  .skip 32, 0x90
.size "$x", 16
.size with_marks, 64

  /* The linker writes the version into the symbol's name. */
.globl a_name_that_is_longer_than_the_other
a_name_that_is_longer_than_the_other:
.type a_name_that_is_longer_than_the_other, @function
  .skip 64, 0x90
.size a_name_that_is_longer_than_the_other, 64
.symver a_name_that_is_longer_than_the_other, versioned@@BY_HAND_1

calls:
.type calls, @function
  call *first_import@GOTPCREL(%rip)
  call first_import@PLT
  movq second_import@GOTPCREL(%rip), %rax
  call second_import@PLT
  movq third_import@GOTPCREL(%rip), %rax
  call third_import@PLT
  ret
.size calls, .-calls

  /* A label of no size, and code behind it that is nobody's. */
no_size:
  .skip 8192, 0x90

  /* And one at the end of its section. */
.section .first_section, "ax", @progbits
  .skip 64, 0x90
at_the_end:
.section .second_section, "ax", @progbits
  .skip 64, 0x90
sized:
.type sized, @function
  .skip 64, 0x90
.size sized, 64
.section .note.GNU-stack, "", @progbits
