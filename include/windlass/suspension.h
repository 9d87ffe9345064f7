// Stopping the threads of a managed runtime where their stacks can be walked, for a collector or a debugger. A thread
// in native code counts as stopped: it is walked from its explicit frames, and waits when it comes back. One in managed
// code gets a signal: at a safe point it waits there, in the handler; elsewhere the return address of its method is
// replaced (hijacked), and it waits when it returns. Walks see through both.
//
//   Suspender suspender(own_process(), runtime, safe_points, SIGRTMIN + 3);
//   suspender.attach(mine);                       // each thread, for itself: in native code from then on
//   suspender.leave_native(mine); run(); suspender.enter_native(mine);      // around managed code
//   { const Stopped stopped(suspender); for (MutatorThread* thread : stopped.threads()) walk(thread->walk, {}, ...); }
//
// Threads may come and go at any time; while others are stopped, attaching, detaching and leaving native code wait.
// One thread stops the others at a time. x86-64 and AArch64, Linux.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "windlass/managed_exception.h"

namespace windlass::managed {

struct MutatorThread;
void print_late(const Error& why);  // to stderr

// What the runtime knows of its code. Asked in a signal handler, of the thread that is to stop.
class SafePoints {
 public:
  virtual ~SafePoints() = default;
  // Are the roots of this frame known at this instruction, about to be executed?
  [[nodiscard]] virtual bool is_safe_point(const Method& method, std::uint64_t pc) const = 0;
  // May its return address be replaced, the pc being anywhere in it?
  [[nodiscard]] virtual bool can_hijack(const Method& /*method*/) const { return true; }
  // Does it return a reference? It is a root then while the thread waits behind its return.
  [[nodiscard]] virtual bool returns_reference(const Method& /*method*/) const { return false; }
  // By who stops, while it waits, once for each thread that has not stopped within a second. `why` names the rule that
  // its code breaks, `where` the pc that the last signal has found it at, `detail` the thread. Without an override: it
  // is written to stderr.
  virtual void is_late(const MutatorThread& /*thread*/, const Error& why) const { print_late(why); }
};

// A thread that comes back from native code says kManaged first and then looks whether it has to wait; so while others
// are stopped it may be seen in either mode, but runs no managed code.
enum class ThreadMode : std::uint32_t { kNative, kManaged };

// A thread of the runtime: made and attached by the thread itself, and neither moved nor destroyed while attached. It
// throws, too, if it has a personality: who stops it walks over the exceptions that are under way. `walk` has own_list;
// space and runtime are set by attach().
struct MutatorThread : ThrowingThread {
  MutatorThread() { walk.own_list = &frames; }

  FrameList frames;
  std::atomic<ThreadMode> mode = ThreadMode::kNative;  // as generated code may change it, too: Suspender::pending()

  // ---- the library's ----
  enum : std::uint32_t { kRunning, kWaiting };
  std::atomic<std::uint32_t> state = kRunning;
  std::uint64_t returned = 0;     // what a hijacked method has returned,
  std::uint64_t returned_at = 0;  // and the address of this, if it is a reference; 0: it is none
  bool returned_is_reference = false;
  int id = 0;                              // of the system
  std::atomic<std::uint64_t> seen_at = 0;  // where the last signal has found it
};

class Suspender {
 public:
  // `signal` is the runtime's for this alone; its handler is installed, with the thread's own stack. The runtime and
  // the safe points outlive it. There may be one in a process: the program ends for a second one.
  Suspender(const AddressSpace& space, const Runtime& runtime, const SafePoints& safe_points, int signal);
  ~Suspender();
  Suspender(const Suspender&) = delete;
  Suspender& operator=(const Suspender&) = delete;

  // The calling thread's. Ends the process, and says so, where the thread has a shadow stack (CET): a return address
  // that is replaced would end it later.
  void attach(MutatorThread& thread);
  void detach(MutatorThread& thread);
  // Between managed and native code. Before entering native code the explicit frame is linked; leaving waits while
  // threads are stopped. 5 ns each. Generated code may do it itself: store the mode, and on the way back compare
  // *pending() with 0 behind a full barrier, and call leave_native() where it is not.
  void enter_native(MutatorThread& thread) { thread.mode.store(ThreadMode::kNative, std::memory_order_release); }
  void leave_native(MutatorThread& thread) {
    thread.mode.store(ThreadMode::kManaged, std::memory_order_seq_cst);
    if (pending_.load(std::memory_order_seq_cst) != 0) [[unlikely]]
      wait_to_leave(thread);
  }
  // Not 0 while threads are stopped or about to be.
  [[nodiscard]] const std::atomic<std::uint32_t>* pending() const { return &pending_; }

 private:
  friend class Stopped;
  friend struct SuspensionSignal;
  // Nothing: all are stopped. Else nothing is, `within` being over.
  [[nodiscard]] std::optional<Error> stop(std::optional<std::chrono::nanoseconds> within);
  void resume();
  [[nodiscard]] Error why_late(const MutatorThread& thread) const;
  [[nodiscard]] bool is_stopped(const MutatorThread& thread) const;
  void wait_to_leave(MutatorThread& thread);
  template <typename Word>
  void wait_for_resumption(std::atomic<Word>& word, Word waiting, Word running);
  void on_signal(MutatorThread& thread, void* ucontext);
  void on_hijacked_return(MutatorThread& thread, std::uint64_t* slots);
  void hijack(MutatorThread& thread, const Method& method, const Registers& registers);

  const AddressSpace& space_;
  const Runtime& runtime_;
  const SafePoints& safe_points_;
  const int signal_;
  std::atomic<std::uint32_t> pending_ = 0;
  std::mutex one_at_a_time_;  // who stops
  std::mutex lock_;           // of threads_
  std::vector<MutatorThread*> threads_;
  std::atomic<unsigned> arriving_ = 0;  // threads that wait to attach or detach: they go before who stops again
  MutatorThread* stopper_ = nullptr;
};

// While it lives all attached threads but the calling one are stopped. The calling thread is in native code, or not
// attached. Waits for the slowest thread: signals are sent again each millisecond.
//
// A thread in managed code stops where a signal finds it at a safe point, or where the method that it was in returns.
// So each loop has to be safe at every instruction, to call something that returns, or to look at
// Suspender::pending() itself: one safe point in a loop is met by no signal for a very long time.
class Stopped {
 public:
  // For as long as it takes. SafePoints::is_late() hears of threads that keep it waiting.
  explicit Stopped(Suspender& suspender) : suspender_(suspender) { (void)suspender_.stop(std::nullopt); }
  // Gives up after `within`: then nothing is stopped, and error() says which thread has not, and why (kLimit, `where`
  // its pc, `detail` its id).
  Stopped(Suspender& suspender, std::chrono::nanoseconds within)
      : suspender_(suspender), error_(suspender_.stop(within)) {}
  ~Stopped() {
    if (!error_) suspender_.resume();
  }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  Stopped(const Stopped&) = delete;
  Stopped& operator=(const Stopped&) = delete;
  // All attached threads, the calling one's too.
  [[nodiscard]] const std::vector<MutatorThread*>& threads() const { return suspender_.threads_; }
  // The one that the system calls so; null: it is not attached.
  [[nodiscard]] MutatorThread* find(int id) const;

 private:
  Suspender& suspender_;
  std::optional<Error> error_;
};

}  // namespace windlass::managed
