/* Prints the own stack with names. */
#include <windlass/c/stack.h>

int main(void) { return windlass_print_stack(1); }
