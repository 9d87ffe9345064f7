// Prints the own stack with names, inlined calls, files and lines.
#include <windlass/stack.h>

static inline __attribute__((always_inline)) void inlined() { (void)windlass::print_stack(1); }
extern "C" __attribute__((noinline)) void outer() { inlined(); }
int main() { outer(); }
