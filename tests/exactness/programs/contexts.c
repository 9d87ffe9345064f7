// Stacks that are switched by hand: each coroutine's is a mapping of its own.
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "marker.h"

static ucontext_t main_context, contexts[2];
static volatile int sum;

__attribute__((noinline)) static int work(int depth) {
  char bytes[32];
  memset(bytes, depth, sizeof bytes);
  sum += bytes[5];
  return depth ? work(depth - 1) + sum : sum;
}
static void coroutine(int which) {
  for (int i = 0; i < 4; ++i) {
    work(3 + which);
    swapcontext(&contexts[which], which ? &main_context : &contexts[1]);
  }
}

int main(void) {
  const size_t size = 1 << 16;
  for (int i = 0; i < 2; ++i) {
    // A page that stays unreadable on either side separates the stacks.
    char* stack = mmap(0, size + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(stack + 4096, size, PROT_READ | PROT_WRITE);
    getcontext(&contexts[i]);
    contexts[i].uc_stack.ss_sp = stack + 4096;
    contexts[i].uc_stack.ss_size = size;
    contexts[i].uc_link = &main_context;
    makecontext(&contexts[i], (void (*)(void))coroutine, 1, i);
  }
  judge_from_here();
  for (int i = 0; i < 4; ++i) {
    swapcontext(&main_context, &contexts[0]);
    work(2);
  }
  return sum == 1;
}
