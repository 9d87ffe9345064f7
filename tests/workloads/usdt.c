/* A program with static probes, whose notes are written by hand (the form of sys/sdt.h).
 *   usdt CALLS
 * Passes the probe test:always CALLS times, in two functions by turns, and test:guarded as often while somebody
 * listens. Prints how often: "always N" and "guarded N". */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Counts who listens to test:guarded. */
__attribute__((section(".probes"), used)) volatile unsigned short guarded_semaphore;

#define PROBE(name, semaphore)                                                \
  __asm__ volatile(                                                           \
      "990: nop\n"                                                            \
      ".pushsection .note.stapsdt,\"\",\"note\"\n"                            \
      ".balign 4\n"                                                           \
      ".4byte 992f-991f, 994f-993f, 3\n"                                      \
      "991: .asciz \"stapsdt\"\n"                                             \
      "992: .balign 4\n"                                                      \
      "993: .8byte 990b, _.stapsdt.base, " semaphore                          \
      "\n"                                                                    \
      ".asciz \"test\"\n.asciz \"" name                                       \
      "\"\n.asciz \"\"\n"                                                     \
      "994: .balign 4\n"                                                      \
      ".popsection\n"                                                         \
      ".ifndef _.stapsdt.base\n"                                              \
      ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
      ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n"                        \
      "_.stapsdt.base: .space 1\n"                                            \
      ".size _.stapsdt.base, 1\n"                                             \
      ".popsection\n"                                                         \
      ".endif\n")

__attribute__((noinline)) void probe_even(void) { PROBE("always", "0"); }
__attribute__((noinline)) void probe_odd(void) { PROBE("always", "0"); }
__attribute__((noinline)) int probe_guarded(void) {
  if (guarded_semaphore == 0) return 0;
  PROBE("guarded", "guarded_semaphore");
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const int calls = atoi(argv[1]);
  int guarded = 0;
  usleep(300000); /* for the profiler to have seen the program */
  for (int i = 0; i < calls; i++) {
    if (i % 2 == 0)
      probe_even();
    else
      probe_odd();
    guarded += probe_guarded();
  }
  printf("always %d\nguarded %d\n", calls, guarded);
  return 0;
}
