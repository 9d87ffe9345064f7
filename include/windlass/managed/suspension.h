// Stops the threads of a managed runtime where their stacks can be walked: for a collector or a debugger.
//
// A thread in native code counts as stopped. It is walked from its explicit frames, and waits before it returns to
// managed code. A thread in managed code gets a signal. If the signal finds the thread at a safe point, the thread
// waits in the handler. Elsewhere the return address of its method is replaced (hijacked), and the thread waits when
// the method returns. Walks see through both.
//
// One suspender for the process; each thread attaches itself, and is in native code from then on:
//
//   Suspender suspender(own_process(), runtime, safe_points, SIGRTMIN + 3);
//   suspender.attach(mine);
//
// Around managed code:
//
//   suspender.leave_native(mine); run(); suspender.enter_native(mine);
//
// For example, a collector:
//
//   const Stopped stopped(suspender);
//   for (MutatorThread* thread : stopped.threads()) each_root(thread->walk, {}, kThreadIsSuspended, sink);
//
// Threads may come and go at any time. While threads are stopped, attaching, detaching and leaving native code wait.
// One thread at a time stops the others. x86-64 and AArch64, Linux.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "windlass/managed/exception.h"

namespace windlass::managed {

struct MutatorThread;
void print_late(const Error& why);  // Writes the error to stderr.

// The runtime's knowledge of its code. The first three functions are called in a signal handler, on the thread that is
// to stop.
class SafePoints {
 public:
  virtual ~SafePoints() = default;
  // True if the roots of the frame are known before the instruction at `pc` runs.
  [[nodiscard]] virtual bool is_safe_point(const Method& method, std::uint64_t pc) const = 0;
  // True if the method's return address may be replaced, wherever in the method the pc is.
  [[nodiscard]] virtual bool can_hijack(const Method& /*method*/) const { return true; }
  // True if the method returns a reference. While a thread waits behind its return, that reference is a root.
  [[nodiscard]] virtual bool returns_reference(const Method& /*method*/) const { return false; }
  // Called by the stopping thread while it waits: once for each thread that has not stopped within a second. `why` says
  // which rule the thread's code breaks, `where` is the pc that the last signal found, `detail` the thread's id.
  // Without an override: written to stderr.
  virtual void is_late(const MutatorThread& /*thread*/, const Error& why) const { print_late(why); }
};

// Where a thread is. A thread that comes back from native code first stores kManaged, and then looks whether it must
// wait. So while threads are stopped, the mode of a stopped thread may be either. It runs no managed code.
enum class ThreadMode : std::uint32_t { kNative, kManaged };

// A thread of the runtime. The thread itself makes and attaches this object, and neither moves nor destroys it while
// attached. With a personality the thread can throw; a walk of a stopped thread also passes the exceptions that are
// under way. The constructor sets walk.own_list, and Suspender::attach() sets walk.space and walk.runtime.
struct MutatorThread : ThrowingThread {
  MutatorThread() { walk.own_list = &frames; }

  FrameList frames;
  // Generated code may store this too: see Suspender::pending().
  std::atomic<ThreadMode> mode = ThreadMode::kNative;

  // ---- for the library alone ----
  enum : std::uint32_t { kRunning, kWaiting };
  std::atomic<std::uint32_t> state = kRunning;
  std::uint64_t returned = 0;     // The value that a hijacked method has returned.
  std::uint64_t returned_at = 0;  // The address of `returned`: the root's word at ExplicitFrame::references.
  bool returned_is_reference = false;
  int id = 0;                              // The system's thread id.
  std::atomic<std::uint64_t> seen_at = 0;  // The pc that the last signal found.
};

// Stops and resumes the threads of a runtime, by Stopped below. There may be one in a process: making a second one ends
// the process (abort).
class Suspender {
 public:
  // Installs the handler of `signal`, which the runtime uses for nothing else. The handler runs on the thread's own
  // stack. `space`, `runtime` and `safe_points` outlive the suspender.
  Suspender(const AddressSpace& space, const Runtime& runtime, const SafePoints& safe_points, int signal);
  ~Suspender();
  Suspender(const Suspender&) = delete;
  Suspender& operator=(const Suspender&) = delete;

  // Attaches or detaches the calling thread. If the thread has a shadow stack (CET), attach() writes that to stderr and
  // ends the process: a replaced return address would end it later.
  void attach(MutatorThread& thread);
  void detach(MutatorThread& thread);
  // Enters and leaves native code, 5 ns each. Before entering, link the explicit frame. Leaving waits while threads are
  // stopped.
  //
  // Generated code may do this itself. To enter, store the mode. To leave, store the mode, execute a full barrier, and
  // compare *pending() with 0. If it is not 0, call leave_native().
  void enter_native(MutatorThread& thread) { thread.mode.store(ThreadMode::kNative, std::memory_order_release); }
  void leave_native(MutatorThread& thread) {
    thread.mode.store(ThreadMode::kManaged, std::memory_order_seq_cst);
    if (pending_.load(std::memory_order_seq_cst) != 0) [[unlikely]]
      wait_to_leave(thread);
  }
  // A word that is not 0 while threads are stopped or about to be.
  [[nodiscard]] const std::atomic<std::uint32_t>* pending() const { return &pending_; }

 private:
  friend class Stopped;
  friend struct SuspensionSignal;
  // Returns nothing when all threads are stopped. After `within`, returns an error, and no thread is stopped.
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
  std::mutex one_at_a_time_;  // Held by the thread that stops the others.
  std::mutex lock_;           // Guards threads_.
  std::vector<MutatorThread*> threads_;
  // Threads that wait to attach or detach. They go before the next thread that stops the others.
  std::atomic<unsigned> arriving_ = 0;
  MutatorThread* stopper_ = nullptr;
};

// While this object lives, all attached threads except the calling one are stopped. The calling thread is in native
// code, or not attached. Waits for the slowest thread, and sends signals again each millisecond.
//
// A thread in managed code stops where a signal finds it at a safe point, or when its method returns. So in each loop,
// one of these must hold:
// - Every instruction is a safe point.
// - The loop calls a function that returns.
// - The loop reads Suspender::pending() itself.
//
// For example, a loop with a single safe point may run for a very long time before a signal finds it there.
class Stopped {
 public:
  // Waits as long as it takes. SafePoints::is_late() is told of slow threads.
  explicit Stopped(Suspender& suspender) : suspender_(suspender) { (void)suspender_.stop(std::nullopt); }
  // Gives up after `within`. Then no thread is stopped, and error() says which thread did not stop, and why: kLimit,
  // `where` is its pc, `detail` its id.
  Stopped(Suspender& suspender, std::chrono::nanoseconds within)
      : suspender_(suspender), error_(suspender_.stop(within)) {}
  ~Stopped() {
    if (!error_) suspender_.resume();
  }
  // The error of a stop that gave up; no error: all threads are stopped.
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  Stopped(const Stopped&) = delete;
  Stopped& operator=(const Stopped&) = delete;
  // All attached threads, including the calling one.
  [[nodiscard]] const std::vector<MutatorThread*>& threads() const { return suspender_.threads_; }
  // The thread with this system thread id; null if it is not attached.
  [[nodiscard]] MutatorThread* find(int id) const;

 private:
  Suspender& suspender_;
  std::optional<Error> error_;
};

}  // namespace windlass::managed
