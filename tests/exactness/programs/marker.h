// The system call at which a judge starts to look: everything before it is the dynamic linker's work.
#pragma once
#include <sys/syscall.h>
#include <unistd.h>
static inline void judge_from_here(void) { syscall(SYS_getppid); }
