// What the oracle and the test agree on: the registers and the stack they unwind from.
#pragma once

typedef unsigned long long u64;

#define ORACLE_ANSWER 21  // words: pc, sp, x19-x29, d8-d15
#define ORACLE_STACK (16ull << 20)
#define ORACLE_SP (ORACLE_STACK / 2)
#define ORACLE_FP (ORACLE_SP + 0x400)
#define ORACLE_LR 0x123456780ull
#define ORACLE_X(i) (0x1000ull + (u64)(i))
#define ORACLE_D(i) (0x2000ull + (u64)(i))
#define ORACLE_WORD(offset) (0x5000000000ull + (u64)(offset))
#define ORACLE_RELATIVE 0xf000000000000000ull  // + an offset in the stack
