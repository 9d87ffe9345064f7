// Programs of others, run without a shell.
#pragma once

#include <sys/types.h>

namespace windlass::os {

// Starts `arguments[0]`, found by PATH. `arguments` end with null. `out` is the program's standard output, `file` its
// descriptor 3 if it is not -1. Standard input and error are /dev/null, and no other descriptor and no blocked signal
// is passed on. -1: not started, and errno says why.
[[nodiscard]] pid_t start_program(const char* const arguments[], int out, int file = -1);

// Waits for the end of a child. The status as waitpid(2) gives it.
int wait_for_program(pid_t child);

}  // namespace windlass::os
