// test_walk_arguments.py changes the debug information of this program: a name, and a type that then is itself.
#include <stdio.h>
#include <unistd.h>

typedef int endless;
struct holder {
  endless inside;
};

__attribute__((noinline)) int patched(int name_with_escape, endless value, struct holder held, endless* pointer) {
  printf("ready\n");
  fflush(stdout);
  for (;;) pause();
  return name_with_escape + value + held.inside + *pointer;
}

int main(int argc, char** argv) {
  endless value = argc + (argv == 0);
  struct holder held = {2};
  return patched(5, value, held, &value);
}
