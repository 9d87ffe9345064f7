/* tests/mutants/run.py makes a copy of the sources, where each file with mutants includes this first. wl_mutant(n) is
 * true in a process whose environment has WINDLASS_MUTANT=n. It is false in the BPF programs, which share headers with
 * the tests. No product code includes this. */
#pragma once

#ifdef __bpf__
#define wl_mutant(n) 0
#else

#include <stdlib.h>

/* Read once. Not by a static that is initialised, which would take a lock and come too late for code that runs before.
 */
static inline unsigned wl_mutant_number(void) {
  static unsigned number = ~0u;
  unsigned known = __atomic_load_n(&number, __ATOMIC_RELAXED);
  if (known == ~0u) {
    const char* chosen = getenv("WINDLASS_MUTANT");
    known = chosen ? (unsigned)strtoul(chosen, NULL, 10) : 0;
    __atomic_store_n(&number, known, __ATOMIC_RELAXED);
  }
  return known;
}

#ifdef __cplusplus
/* What is computed by the compiler is never mutated. */
[[gnu::always_inline]] constexpr bool wl_mutant(unsigned n) {
  return !__builtin_is_constant_evaluated() && wl_mutant_number() == n;
}
#else
#define wl_mutant(n) (wl_mutant_number() == (n))
#endif
#endif
