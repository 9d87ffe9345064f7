// Threads of another process held stopped (ptrace(2), PTRACE_SEIZE).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include <pthread.h>
#include <semaphore.h>
#include <sys/types.h>

#include "windlass/error.h"
#include "windlass/registers.h"

namespace windlass::walk {

struct StoppedThread {
  pid_t id = 0;
  Registers registers;
  bool stopped = false;  // false: it is in an uninterruptible wait; the registers are what /proc tells (pc and sp)
};

// Only the thread that traces may detach, so each attachment has one of its own, which waits until it is released: the
// owner may do that on any thread. Should this process die, the kernel detaches and the threads go on.
class Attachment {
 public:
  // Stops all threads, those too that are born meanwhile. Errors: kSystem with errno; EPERM with the id of another
  // tracer, if there is one, as `where`. kUnsupported for 32-bit code. On an error nothing is left stopped.
  static Expected<std::shared_ptr<Attachment>> attach(pid_t pid, Architecture architecture, unsigned timeout_ms);
  ~Attachment();
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

  [[nodiscard]] const std::vector<StoppedThread>& threads() const { return threads_; }
  // Bits of return addresses that are authentication codes, as the kernel tells (AArch64); 0: it does not.
  [[nodiscard]] std::uint64_t pac_mask() const { return pac_mask_; }

 private:
  struct Held {
    pid_t id;
    bool stopped = false;
    bool gone = false;
    int signal = 0;  // what it was about to receive: handed back when it goes on
  };

  Attachment(pid_t pid, Architecture architecture, unsigned timeout_ms);
  static void* run(void* self);
  Expected<void> stop_all();
  Expected<bool> seize_new();
  Expected<void> await_stops();
  bool poll_stop(Held& thread) const;
  Expected<void> read_registers();
  void let_go();

  pid_t pid_;
  Architecture architecture_;
  std::uint64_t deadline_ns_;
  std::vector<Held> held_;
  std::unordered_set<pid_t> seen_;  // the ids in it
  std::vector<StoppedThread> threads_;
  std::uint64_t pac_mask_ = 0;
  Expected<void> result_;
  pthread_t tracer_{};
  bool running_ = false;
  sem_t ready_;
  sem_t release_;
};

}  // namespace windlass::walk
