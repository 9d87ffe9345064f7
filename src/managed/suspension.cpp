#include "windlass/managed/suspension.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "managed/install.h"

namespace windlass::managed {
namespace {

// Of the process: a signal handler has nothing else to go by.
std::atomic<Suspender*> the_suspender = nullptr;
constexpr std::uint32_t kRunning = MutatorThread::kRunning, kWaiting = MutatorThread::kWaiting;
thread_local constinit MutatorThread* this_thread = nullptr;

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t value, const timespec* timeout) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, timeout, nullptr, 0);
}
void futex_wake(const std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// The registers that a collector may have changed in the frame, back to where the thread goes on.
void write_back(const SavedContext& context, void* ucontext) {
  auto& machine = static_cast<ucontext_t*>(ucontext)->uc_mcontext;
#if defined(__x86_64__)
  constexpr int kOfDwarf[16] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP,
                                REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  for (unsigned reg = 0; reg < 16; ++reg) machine.gregs[kOfDwarf[reg]] = static_cast<greg_t>(context.value[reg]);
#else
  for (unsigned reg = 0; reg < 31; ++reg) machine.regs[reg] = context.value[reg];
#endif
}

// The place of the address to which windlass_hijacked_return() returns. Unwinders look there, too.
std::uint64_t& return_address_of(std::uint64_t* slots) {
#if defined(__x86_64__)
  return reinterpret_cast<std::uint64_t*>(slots[Registers::sp_number(kOwnArchitecture)])[-1];
#else
  return slots[Registers::pc_number(kOwnArchitecture)];
#endif
}

}  // namespace

struct SuspensionSignal {
  static void handle(int, siginfo_t*, void* ucontext) {
    const int kept = errno;
    Suspender* suspender = the_suspender.load(std::memory_order_acquire);
    if (suspender != nullptr && this_thread != nullptr) suspender->on_signal(*this_thread, ucontext);
    errno = kept;
  }
  static void returned(std::uint64_t* slots) {
    the_suspender.load(std::memory_order_acquire)->on_hijacked_return(*this_thread, slots);
  }
};

extern "C" void windlass_on_hijacked_return(std::uint64_t* slots) { SuspensionSignal::returned(slots); }

Suspender::Suspender(const AddressSpace& space, const Runtime& runtime, const SafePoints& safe_points, int signal)
    : space_(space), runtime_(runtime), safe_points_(safe_points), signal_(signal) {
  Suspender* none = nullptr;
  if (!the_suspender.compare_exchange_strong(none, this)) std::abort();
  struct sigaction action {};
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  action.sa_sigaction = SuspensionSignal::handle;
  sigfillset(&action.sa_mask);
  sigaction(signal_, &action, nullptr);
}

Suspender::~Suspender() {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  sigaction(signal_, &action, nullptr);
  the_suspender.store(nullptr, std::memory_order_release);
}

// ---- threads ------------------------------------------------------------------------------------------------------

void Suspender::attach(MutatorThread& thread) {
  refuse_shadow_stack("suspension by return addresses that are replaced");
  thread.walk.space = &space_;
  thread.walk.runtime = &runtime_;
  thread.id = static_cast<int>(syscall(SYS_gettid));
  thread.walk.id = static_cast<std::uint64_t>(thread.id);
  this_thread = &thread;
  ++arriving_;
  const std::lock_guard lock(lock_);
  --arriving_;
  threads_.push_back(&thread);
}

void Suspender::detach(MutatorThread& thread) {
  {
    ++arriving_;
    const std::lock_guard lock(lock_);
    --arriving_;
    threads_.erase(std::find(threads_.begin(), threads_.end(), &thread));
  }
  this_thread = nullptr;
}

// Stores `waiting`, and stores `running` only while no other thread is stopping threads. The thread that stops others
// stores `pending_` first, and reads `word` then.
template <typename Word>
void Suspender::wait_for_resumption(std::atomic<Word>& word, Word waiting, Word running) {
  do {
    word.store(waiting, std::memory_order_seq_cst);
    for (std::uint32_t pending; (pending = pending_.load(std::memory_order_seq_cst)) != 0;)
      futex_wait(pending_, pending, nullptr);
    word.store(running, std::memory_order_seq_cst);
  } while (pending_.load(std::memory_order_seq_cst) != 0);
}

void Suspender::wait_to_leave(MutatorThread& thread) {
  wait_for_resumption(thread.mode, ThreadMode::kNative, ThreadMode::kManaged);
}

// ---- who stops ----------------------------------------------------------------------------------------------------

bool Suspender::is_stopped(const MutatorThread& thread) const {
  return &thread == stopper_ || thread.state.load(std::memory_order_seq_cst) == MutatorThread::kWaiting ||
         thread.mode.load(std::memory_order_seq_cst) == ThreadMode::kNative;
}

void print_late(const Error& why) {
  std::fprintf(stderr, "windlass: a thread does not stop: %s\n", why.text().c_str());
}

MutatorThread* Stopped::find(int id) const {
  for (MutatorThread* thread : suspender_.threads_)
    if (thread->id == id) return thread;
  return nullptr;
}

Error Suspender::why_late(const MutatorThread& thread) const {
  const std::uint64_t pc = thread.seen_at.load(std::memory_order_relaxed);
  const auto id = static_cast<std::uint64_t>(thread.id);
  const Method* method = pc != 0 ? runtime_.find(pc) : nullptr;
  if (method == nullptr)
    return {ErrorCode::kLimit, "it is in native code, and did not say so: enter_native() comes before", pc, id};
  if (!safe_points_.can_hijack(*method))
    return {ErrorCode::kLimit,
            "its method may not be hijacked, and no signal finds it at a safe point: its loops have "
            "to be safe at every instruction, or to look at pending()",
            pc, id};
  return {ErrorCode::kLimit,
          "its method does not return, and no signal finds it at a safe point: its loops have to be "
          "safe at every instruction, or to look at pending()",
          pc, id};
}

std::optional<Error> Suspender::stop(std::optional<std::chrono::nanoseconds> within) {
  using Clock = std::chrono::steady_clock;
  one_at_a_time_.lock();
  for (int i = 0; i < 1000 && arriving_.load(std::memory_order_relaxed) != 0; ++i) sched_yield();
  lock_.lock();
  stopper_ = this_thread;
  pending_.store(1, std::memory_order_seq_cst);
  const pid_t process = getpid();
  const Clock::time_point begin = Clock::now();
  bool told = false;
  for (;;) {
    bool all = true;
    const Clock::duration waited = Clock::now() - begin;
    const bool late = !told && waited >= std::chrono::seconds(1);
    for (const MutatorThread* thread : threads_) {
      if (is_stopped(*thread)) continue;
      all = false;
      if (within && waited >= *within) {
        const Error why = why_late(*thread);
        resume();
        return why;
      }
      if (late) safe_points_.is_late(*thread, why_late(*thread));
      syscall(SYS_tgkill, process, thread->id, signal_);
    }
    told |= late;
    if (all) return std::nullopt;
    constexpr timespec kAgain{.tv_sec = 0, .tv_nsec = 1'000'000};
    // A thread that stops soon is not waited for longer than it takes.
    for (int i = 0; i < 200 && !all; ++i) {
      sched_yield();
      all = std::ranges::all_of(threads_, [&](const MutatorThread* thread) { return is_stopped(*thread); });
    }
    if (all) return std::nullopt;
    nanosleep(&kAgain, nullptr);
  }
}

void Suspender::resume() {
  for (MutatorThread* thread : threads_) {
    Hijack& hijack = thread->walk.hijack;
    // One that has not stopped may be about to return by its slot, and finds out itself that nobody waits.
    if (hijack.slot == 0 || thread == stopper_ || !is_stopped(*thread)) continue;
    *reinterpret_cast<std::uint64_t*>(hijack.slot) = hijack.original;
    std::atomic_signal_fence(std::memory_order_release);
    hijack.slot = 0;
  }
  stopper_ = nullptr;
  pending_.store(0, std::memory_order_seq_cst);
  futex_wake(pending_);
  lock_.unlock();
  one_at_a_time_.unlock();
}

// ---- who is stopped -----------------------------------------------------------------------------------------------

void Suspender::on_signal(MutatorThread& thread, void* ucontext) {
  if (pending_.load(std::memory_order_seq_cst) == 0 ||
      thread.mode.load(std::memory_order_seq_cst) != ThreadMode::kManaged)
    return;
  const Registers registers = registers_of(ucontext);
  thread.seen_at.store(registers.pc().value(), std::memory_order_relaxed);
  const Method* method = runtime_.find(registers.pc().value());
  if (method == nullptr) return;  // a helper, which says so when it is back; or it is asked again
  if (!safe_points_.is_safe_point(*method, registers.pc().value())) return hijack(thread, *method, registers);
  ContextFrame frame(FrameKind::kRedirected, FrameForm::kContext);
  frame.context.set(registers);
  const Pushed pushed(thread.frames, frame);
  wait_for_resumption(thread.state, kWaiting, kRunning);
  write_back(frame.context, ucontext);
}

// Where the return address is in a register (AArch64, before the prologue has stored it) nothing can be replaced: the
// next signal will find the thread elsewhere.
void Suspender::hijack(MutatorThread& thread, const Method& method, const Registers& registers) {
  if (thread.walk.hijack.slot != 0 || !safe_points_.can_hijack(method)) return;
  ManagedWalker walker(thread.walk, registers, kAllowAsyncWalk | kNotifyOnUnmanagedToManaged | kSkipCookieCheck);
  do {
    if (!walker.next()) return;
  } while (!walker.frame().frameless());
  if (!walker.next()) return;
  const CrawlFrame& caller = walker.frame();
  const std::uint64_t slot = caller.saved.at(caller.registers, Registers::pc_number(caller.registers.architecture()));
  const bool has_caller = caller.frameless() || caller.state == CrawlState::kNativeMarker;
  if (!has_caller || slot == 0) return;
  thread.walk.hijack = {.slot = slot, .original = caller.pc().value()};
  thread.returned_is_reference = safe_points_.returns_reference(method);
  std::atomic_signal_fence(std::memory_order_release);
  *reinterpret_cast<std::uint64_t*>(slot) = reinterpret_cast<std::uint64_t>(&windlass_hijacked_return);
}

// On the thread's stack, where its method has returned to: `slots` has the caller's registers, but for the pc. Up to
// here walks know it from thread.walk.hijack, then by the return address of windlass_hijacked_return().
void Suspender::on_hijacked_return(MutatorThread& thread, std::uint64_t* slots) {
  std::uint64_t& back = return_address_of(slots);
  back = thread.walk.hijack.original;
  std::atomic_signal_fence(
      std::memory_order_release);  // whoever walks from a handler sees through the one or the other
  thread.walk.hijack.slot = 0;
  if (pending_.load(std::memory_order_seq_cst) == 0) return;
  ContextFrame frame(FrameKind::kHijacked, FrameForm::kSaved);
  frame.context.known = kCapturedSlots;
  frame.context.return_address = 1;
  std::copy_n(slots, Registers::kSlots, frame.context.value);
  frame.context.value[Registers::pc_number(kOwnArchitecture)] = back;
  thread.returned = slots[0];
  thread.returned_at = reinterpret_cast<std::uint64_t>(&thread.returned);
  if (thread.returned_is_reference) {
    frame.header.reference_count = 1;
    frame.header.references = reinterpret_cast<std::uint64_t>(&thread.returned_at);
  }
  {
    const Pushed pushed(thread.frames, frame);
    wait_for_resumption(thread.state, kWaiting, kRunning);
  }
  std::copy_n(frame.context.value, Registers::kSlots, slots);
  slots[0] = thread.returned;
}

}  // namespace windlass::managed
