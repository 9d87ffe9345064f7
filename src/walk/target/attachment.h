// Threads of another process held stopped (ptrace(2), PTRACE_SEIZE).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_set>
#include <vector>

#include <pthread.h>
#include <semaphore.h>
#include <sys/types.h>

#include "os/descriptor.h"
#include "windlass/error.h"
#include "windlass/registers.h"
#include "windlass/target.h"

namespace windlass::walk {

struct StoppedThread {
  pid_t id = 0;
  Registers registers;
  bool stopped = false;      // false: it is in an uninterruptible wait; the registers are what /proc tells (pc and sp)
  bool kernel_only = false;  // as Thread's; without registers
};

// Only the thread that traces may detach. So an attachment has a thread of its own, which waits for requests, and the
// owner may call from any thread; or the owner always calls from one thread, which traces. If this process dies, the
// kernel detaches and the threads run on.
class Attachment {
 public:
  // `folder`: an open /proc/PID, which leads nowhere once the process has ended, whoever gets its number; outlives
  // this. `architecture`: of the program; asked once, when the threads stand still.
  Attachment(pid_t pid, int folder, std::function<Architecture()> architecture, const ProcessOptions& options);
  ~Attachment();
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

  // Stops all threads, also those that are born meanwhile. If the process is stopped already, it runs on first. After
  // an error no thread is stopped.
  //
  // Errors:
  // - kSystem with errno. For EPERM, `where` is the id of another tracer, if there is one.
  // - kUnsupported for a thread of the kernel, and for a thread that runs code of another machine: a 64-bit program in
  //   32-bit code, or another program by now.
  Expected<void> stop();
  // Lets them go on. For how long the process stood, nanoseconds; 0: it did not.
  std::uint64_t release();

  // A stopped thread's floating-point and vector registers, as PTRACE_GETREGSET gives NT_PRFPREG. Empty: not known.
  [[nodiscard]] std::vector<std::byte> vector_registers(pid_t thread);

  // Behind the first stop().
  [[nodiscard]] Architecture architecture() const { return *architecture_; }
  [[nodiscard]] const std::vector<StoppedThread>& threads() const { return threads_; }
  // Bits of return addresses that are authentication codes, as the kernel tells (AArch64); 0: it does not.
  [[nodiscard]] std::uint64_t pac_mask() const { return pac_mask_; }

 private:
  struct Held {
    pid_t id;
    bool interrupted = false;
    bool stopped = false;
    bool gone = false;
    int signal = 0;  // what it was about to receive: handed back when it goes on
  };
  enum class Order : std::uint8_t { kStop, kVectors, kRelease, kEnd };

  Expected<void> start_tracer();
  void end_tracer();
  void ask(Order order);
  static void* run(void* self);
  void perform(Order order);
  Expected<void> stop_all();
  Expected<bool> seize_new();
  void interrupt_new();
  void await_stops();
  [[nodiscard]] bool all_are_stopped() const;
  bool poll_stop(Held& thread) const;
  Expected<void> read_registers();
  void read_vectors();
  [[nodiscard]] bool let_go();

  pid_t pid_;
  os::Descriptor tasks_;  // its folder of threads
  std::function<Architecture()> find_architecture_;
  std::optional<Architecture> architecture_;
  ProcessOptions options_;
  std::uint64_t deadline_ns_ = 0;
  std::uint64_t stopped_since_ns_ = 0;  // 0: nobody is stopped
  std::uint64_t stood_ns_ = 0;          // the last time
  std::vector<Held> held_;
  std::unordered_set<pid_t> seen_;  // the ids in it
  std::vector<StoppedThread> threads_;
  std::uint64_t pac_mask_ = 0;
  Expected<void> result_;
  pid_t wanted_ = 0;  // the thread whose vectors_ are wanted
  std::vector<std::byte> vectors_;
  pthread_t tracer_{};
  bool running_ = false;  // there is a tracer to join
  bool ended_ = false;    // it takes no more orders
  Order order_ = Order::kEnd;
  sem_t asked_;
  sem_t done_;
};

}  // namespace windlass::walk
