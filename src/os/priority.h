// Who samples a machine that is busy has to be scheduled on it.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace windlass::os {

// Gives this thread, and all threads that it starts later, the highest priority, if that is allowed and the priority
// has not been lowered. Loading programs and tables takes half a second of CPU time. At normal priority beside a
// hundred busy threads, loading would last for the whole run of the recorded program.
//
// With autogroups (sched(7)) a priority counts within the session alone. The session itself gets the highest priority,
// too, if `alone` and this process is the first of its session (a service, a container, setsid). `alone`: this process
// starts no program of others. The session of a shell is left alone, since its programs would get the priority.
void raise_priority(bool alone);

// For a thread that was started later and may wait: the usual priority.
void restore_priority();

// Lets a process that raise_priority() has raised end at once, in whatever session it is. From the construction on,
// every thread of the process runs ahead of all processes of usual scheduling (SCHED_RR, sched(7)). Threads started
// later do the same. The destructor ends this, and 0.5 s do: a machine of one CPU is not to stand still for longer.
// Does nothing where it is not allowed. One at a time.
class EndsFirst {
 public:
  EndsFirst();
  ~EndsFirst();
  EndsFirst(const EndsFirst&) = delete;
  EndsFirst& operator=(const EndsFirst&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread bound_;  // not joinable if nothing was raised
};

}  // namespace windlass::os
