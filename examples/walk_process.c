/* Every thread of a process, a core file or a minidump, with names. */
#include <stdio.h>
#include <windlass/c/stack.h>

int main(int argc, char** argv) {
  windlass_error error = {.size = sizeof error};
  if (windlass_print_stacks(argc > 1 ? argv[1] : "", 1, &error) != WINDLASS_OK) return puts(error.text), 1;
}
