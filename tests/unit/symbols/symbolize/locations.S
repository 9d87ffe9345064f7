/* Debug information made by hand (DWARF 4): a variable for each form of location. test_dwarf_location.cpp says what each
 * must come to. */
.text
.globl locations
locations:
  ret

.section .debug_abbrev, "", @progbits
.Labbrev:
  .byte 1, 0x11, 1, 0, 0                              /* compile unit, with children */
  .byte 2, 0x34, 0, 0x03, 0x08, 0x02, 0x18, 0, 0      /* variable: name, location as an expression */
  .byte 3, 0x24, 0, 0x3e, 0x0b, 0x0b, 0x0b, 0, 0      /* base type: encoding, byte size */
  .byte 0

.macro location name
  .byte 2
  .asciz "\name"
  .uleb128 .Lend_\name - .Lbegin_\name
.Lbegin_\name:
.endm
.macro is name, bytes:vararg
  location \name
  .byte \bytes
.Lend_\name:
.endm

.section .debug_info, "", @progbits
.Lunit:
  .4byte .Lunit_end - .Lversion
.Lversion:
  .2byte 4
  .4byte .Labbrev
  .byte 8
  .byte 1
.Lint32:
  .byte 3, 5, 4
.Lunsigned8:
  .byte 3, 8, 1
.Lfloat32:
  .byte 3, 4, 4
.Lint64:
  .byte 3, 5, 8
.Lint128:
  .byte 3, 5, 16

  is reg, 0x53                                        /* reg3 */
  is reg_not_known, 0x59                              /* reg9 */
  is regx, 0x90, 3
  is regx_of_two_bytes, 0x90, 0x83, 0x00              /* 3 */
  is reg31, 0x6f
  is xmm0, 0x61                                       /* reg17 */
  is xmm15, 0x90, 32
  is behind_xmm15, 0x90, 33
  is v0, 0x90, 64
  is v31, 0x90, 95
  is behind_v31, 0x90, 96
  is reg_and_more, 0x53, 0x30
  is reg_on_a_stack, 0x30, 0x53
  is breg, 0x77, 16                                   /* breg7 16 */
  is breg_down, 0x77, 0x70                            /* breg7 -16 */
  is breg0_of_0, 0x70, 0
  is breg_at, 0x77, 0
  is breg_not_known, 0x79, 0
  is bregx, 0x92, 7, 16
  is fbreg, 0x91, 0x70                                /* fbreg -16 */
  is cfa, 0x9c, 0x38, 0x1c                            /* call_frame_cfa; lit8; minus */
  is addr, 0x03, 0x00, 0x20, 0, 0, 0, 0, 0, 0         /* addr 0x2000 */
  is lit31, 0x4f, 0x9f                                /* stack_value */
  is const1u, 0x08, 0xfb, 0x9f
  is const1s, 0x09, 0xfb, 0x9f
  is const2u, 0x0a, 0xfb, 0xff, 0x9f
  is const2s, 0x0b, 0xfb, 0xff, 0x9f
  is const4u, 0x0c, 0xfb, 0xff, 0xff, 0xff, 0x9f
  is const4s, 0x0d, 0xfb, 0xff, 0xff, 0xff, 0x9f
  is const8u, 0x0e, 1, 2, 3, 4, 5, 6, 7, 8, 0x9f
  is constu, 0x10, 0x80, 0x01, 0x9f
  is consts, 0x11, 0x7b, 0x9f
  is deref, 0x77, 0, 0x06, 0x9f                       /* breg7 0; deref; stack_value */
  is deref_1, 0x77, 0, 0x94, 1, 0x9f
  is deref_4, 0x77, 0, 0x94, 4, 0x9f
  is deref_0, 0x77, 0, 0x94, 0, 0x9f
  is deref_9, 0x77, 0, 0x94, 9, 0x9f
  is deref_nowhere, 0x30, 0x06, 0x9f
  is deref_nothing, 0x06, 0x9f
  is branch_taken, 0x35, 0x31, 0x28, 1, 0, 0x31, 0x9f          /* lit5; lit1; bra +1; lit1; stack_value */
  is branch_not_taken, 0x35, 0x30, 0x28, 1, 0, 0x32, 0x9f
  is branch_on_nothing, 0x28, 0, 0, 0x35, 0x9f
  is skip, 0x35, 0x2f, 1, 0, 0x32, 0x9f
  is skip_for_ever, 0x35, 0x2f, 0xfd, 0xff, 0x9f
  is skip_into_an_operation, 0x35, 0x2f, 1, 0, 0x08, 0x30, 0x9f
  is skip_back, 0x35, 0x2f, 4, 0, 0x31, 0x2f, 3, 0, 0x2f, 0xf9, 0xff, 0x9f
  is nop, 0x35, 0x96, 0x9f
  is plus_of_one, 0x35, 0x22, 0x9f
  is arithmetic, 0x35, 0x33, 0x1e, 0x31, 0x1c, 0x9f   /* 5 * 3 - 1 */
  is value_of_nothing, 0x9f
  is value_and_more, 0x35, 0x9f, 0x30
  is wraps, 0x0c, 0xff, 0xff, 0xff, 0xff, 0x31, 0x22, 0x9f
  is pieces, 0x53, 0x93, 4, 0x50, 0x93, 4             /* reg3; piece 4; reg0; piece 4 */
  is pieces_of_memory_and_value, 0x77, 0, 0x93, 2, 0x35, 0x9f, 0x93, 6
  is bit_pieces, 0x53, 0x9d, 32, 0, 0x50, 0x9d, 32, 0
  is bit_piece_of_some_bits, 0x53, 0x9d, 33, 0, 0x50, 0x93, 4
  is bit_piece_within, 0x53, 0x9d, 32, 8, 0x50, 0x93, 4
  is piece_that_is_gone, 0x53, 0x93, 4, 0x93, 4
  is piece_not_known, 0x53, 0x93, 4, 0x59, 0x93, 4
  is piece_of_nothing, 0x53, 0x93, 0
  is pieces_too_short, 0x53, 0x93, 4
  is pieces_too_long, 0x53, 0x93, 4, 0x50, 0x93, 8
  is pieces_and_more, 0x53, 0x93, 4, 0x50, 0x93, 4, 0x53
  is implicit, 0x9e, 8, 1, 2, 3, 4, 5, 6, 7, 8
  is implicit_too_short, 0x9e, 4, 1, 2, 3, 4
  is implicit_pointer, 0xf2, 0, 0, 0, 0, 0
  is entry_value, 0xf3, 1, 0x55, 0x9f                 /* GNU_entry_value(reg5) */
  is entry_value_not_known, 0xf3, 1, 0x54, 0x9f
  is entry_value_of_more, 0xf3, 2, 0x75, 8, 0x9f      /* breg5 8 */
  location const_type
    .byte 0xf4
    .uleb128 .Lint32 - .Lunit
    .byte 4, 0xfb, 0xff, 0xff, 0xff, 0x9f
  .Lend_const_type:
  location divides_with_sign                          /* -5 / 2 of int: -2; to the generic type */
    .byte 0xf4
    .uleb128 .Lint32 - .Lunit
    .byte 4, 0xfb, 0xff, 0xff, 0xff
    .byte 0xf4
    .uleb128 .Lint32 - .Lunit
    .byte 4, 2, 0, 0, 0, 0x1b, 0xf7, 0, 0x9f
  .Lend_divides_with_sign:
  location const_type_of_another_size
    .byte 0xf4
    .uleb128 .Lint32 - .Lunit
    .byte 2, 0xfb, 0xff, 0x9f
  .Lend_const_type_of_another_size:
  location const_type_of_a_float
    .byte 0xf4
    .uleb128 .Lfloat32 - .Lunit
    .byte 4, 0, 0, 0x80, 0x3f, 0x9f
  .Lend_const_type_of_a_float:
  location converts                                   /* rbx to a byte, and back to the generic type */
    .byte 0x73, 0, 0xf7
    .uleb128 .Lunsigned8 - .Lunit
    .byte 0xf7, 0, 0x9f
  .Lend_converts:
  location converts_to_16_bytes
    .byte 0x73, 0, 0xf7
    .uleb128 .Lint128 - .Lunit
    .byte 0x9f
  .Lend_converts_to_16_bytes:
  location converts_nothing
    .byte 0xf7, 0, 0x9f
  .Lend_converts_nothing:
  location reinterprets_another_size
    .byte 0x73, 0, 0xf9
    .uleb128 .Lint32 - .Lunit
    .byte 0x9f
  .Lend_reinterprets_another_size:
  location regval_type                                /* rbx as an int, which the generic type has with its sign */
    .byte 0xf5, 3
    .uleb128 .Lint32 - .Lunit
    .byte 0xf7, 0, 0x9f
  .Lend_regval_type:
  location regval_type_of_8_bytes
    .byte 0xf5, 3
    .uleb128 .Lint64 - .Lunit
    .byte 0xf7, 0, 0x9f
  .Lend_regval_type_of_8_bytes:
  location deref_type
    .byte 0x77, 0, 0xf6, 4
    .uleb128 .Lint32 - .Lunit
    .byte 0xf7, 0, 0x9f
  .Lend_deref_type:
  location deref_type_of_another_size
    .byte 0x77, 0, 0xf6, 2
    .uleb128 .Lint32 - .Lunit
    .byte 0xf7, 0, 0x9f
  .Lend_deref_type_of_another_size:
  location pieces_64                                  /* as many as there may be, of one byte */
    .rept 64
    .byte 0x35, 0x9f, 0x93, 1
    .endr
  .Lend_pieces_64:
  location pieces_65
    .rept 65
    .byte 0x35, 0x9f, 0x93, 1
    .endr
  .Lend_pieces_65:
  .byte 0
.Lunit_end:
.section .note.GNU-stack, "", @progbits
