// Room for the walk of a sample. A walk needs 10 KiB of the stack, which not every stack has left: of a thread with the
// smallest stack, of a signal handler's, of a coroutine's. Such a sample is taken on a stack of this library.
#pragma once

#include <pthread.h>

namespace windlass::alloc {

// Surely? True if the caller is on the stack that its thread was started with, far enough from the end. Costs
// nanoseconds.
[[nodiscard]] bool has_room_for_walk();

// Calls the function on another stack, with all signals blocked: no handler finds that stack, which a garbage collector
// might take for the thread's own. False without a call if all these stacks are in use. Needs 400 bytes here.
[[nodiscard]] bool call_on_own_stack(void (*function)(void*), void* argument);

// A thread is started with these attributes.
void note_thread(const pthread_attr_t* attributes);

}  // namespace windlass::alloc
