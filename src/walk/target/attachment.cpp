#include "walk/target/attachment.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <optional>

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/monotonic.h"
#include "os/proc_file.h"
#include "walk/target/regsets.h"

namespace windlass::walk {
namespace {

constexpr std::size_t kMaxThreads = std::size_t{1} << 20;
constexpr int kMaxRounds = 64;  // of looking for threads that were born meanwhile

Failure system_error(const char* what, std::uint64_t where, int error = errno) {
  return fail(ErrorCode::kSystem, what, where, static_cast<std::uint64_t>(error));
}

// The value of a line of /proc/PID/status.
std::string status_field(pid_t pid, pid_t thread, std::string_view name) {
  const std::string text = os::read_proc_file(fmt::format("/proc/{}/task/{}/status", pid, thread));
  return std::string(os::status_field(text, name));
}

pid_t other_tracer(pid_t pid, pid_t thread) {
  const std::string text = status_field(pid, thread, "TracerPid");
  pid_t id = 0;
  std::from_chars(text.data(), text.data() + text.size(), id);
  return id;
}

bool is_dead(pid_t pid, pid_t thread) {
  const std::string state = status_field(pid, thread, "State");
  return state.empty() || state[0] == 'Z' || state[0] == 'X';
}

// The kernel's flags of a thread (PF_*, include/linux/sched.h). 0: the thread has gone.
unsigned kernel_flags(pid_t pid, pid_t thread) {
  constexpr unsigned kFlags = 9;
  const std::string text = os::read_proc_file(fmt::format("/proc/{}/task/{}/stat", pid, thread));
  const std::string_view field = os::stat_field(text, kFlags);
  unsigned flags = 0;
  std::from_chars(field.data(), field.data() + field.size(), flags);
  return flags;
}

bool is_kernel_thread(pid_t pid) { return (kernel_flags(pid, pid) & 0x0020'0000) != 0; }  // PF_KTHREAD

// Workers of io_uring and vhost belong to their process and never leave the kernel, which zeroes their registers.
// PF_IO_WORKER and PF_USER_WORKER.
bool works_for_kernel(pid_t pid, const StoppedThread& thread) {
  const bool no_registers = thread.registers.pc().value() == 0 && thread.registers.sp() == 0;
  return no_registers && (kernel_flags(pid, thread.id) & 0x4010) != 0;
}

// /proc/PID/task/TID/syscall: "NR ARG1..ARG6 SP PC", or "-1 SP PC" outside a call, or "running".
std::optional<Registers> waiting_registers(pid_t pid, pid_t thread, Architecture architecture) {
  const std::string text = os::read_proc_file(fmt::format("/proc/{}/task/{}/syscall", pid, thread));
  const auto pc_at = text.rfind(" 0x");
  if (pc_at == std::string::npos || pc_at == 0) return std::nullopt;
  const auto sp_at = text.rfind(" 0x", pc_at - 1);
  if (sp_at == std::string::npos) return std::nullopt;
  std::uint64_t pc = 0;
  std::uint64_t sp = 0;
  std::from_chars(text.data() + pc_at + 3, text.data() + text.size(), pc, 16);
  std::from_chars(text.data() + sp_at + 3, text.data() + pc_at, sp, 16);
  Registers registers(architecture);
  registers.set_pc(CodeAddress::instruction(pc));
  registers.set_sp(sp);
  return registers;
}

// Threads stop within microseconds: who waits for them shall not sleep the usual 50 longer than it asked for.
class ShortSleeps {
 public:
  ShortSleeps() { (void)::prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); }
  ~ShortSleeps() { (void)::prctl(PR_SET_TIMERSLACK, before_, 0, 0, 0); }
  ShortSleeps(const ShortSleeps&) = delete;
  ShortSleeps& operator=(const ShortSleeps&) = delete;

 private:
  int before_ = ::prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
};

}  // namespace

Attachment::Attachment(pid_t pid, int folder, std::function<Architecture()> architecture, const ProcessOptions& options)
    : pid_(pid),
      tasks_(::openat(folder, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
      find_architecture_(std::move(architecture)),
      options_(options) {
  sem_init(&asked_, 0, 0);
  sem_init(&done_, 0, 0);
}

Attachment::~Attachment() {
  end_tracer();
  sem_destroy(&asked_);
  sem_destroy(&done_);
}

Expected<void> Attachment::stop() {
  (void)release();
  if (ended_) end_tracer();
  if (!running_)
    if (const auto started = start_tracer(); !started) return started;
  ask(Order::kStop);
  return result_;
}

std::uint64_t Attachment::release() {
  if (stopped_since_ns_ == 0) return 0;
  ask(Order::kRelease);
  return stood_ns_;
}

std::vector<std::byte> Attachment::vector_registers(pid_t thread) {
  if (stopped_since_ns_ == 0) return {};
  wanted_ = thread;
  ask(Order::kVectors);
  return std::move(vectors_);
}

// ---- the tracer -----------------------------------------------------------------------------------------------------

Expected<void> Attachment::start_tracer() {
  ended_ = false;
  running_ = options_.one_walk;
  if (running_) return {};
  // The tracer must not run this program's signal handlers.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&tracer_, nullptr, run, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) return system_error("cannot start a thread", 0, error);
  running_ = true;
  return {};
}

void Attachment::end_tracer() {
  if (!running_) return;
  if (!ended_) ask(Order::kEnd);
  if (!options_.one_walk) pthread_join(tracer_, nullptr);
  running_ = false;
}

void Attachment::ask(Order order) {
  if (options_.one_walk) return perform(order);
  order_ = order;
  sem_post(&asked_);
  while (sem_wait(&done_) != 0) {}
}

void* Attachment::run(void* self) {
  auto* attachment = static_cast<Attachment*>(self);
  for (;;) {
    while (sem_wait(&attachment->asked_) != 0) {}
    attachment->perform(attachment->order_);
    const bool ended = attachment->ended_;
    sem_post(&attachment->done_);
    if (ended) return nullptr;
  }
}

void Attachment::perform(Order order) {
  bool all_go_on = true;
  if (order == Order::kStop) result_ = stop_all();
  if (order == Order::kVectors) read_vectors();
  const bool stays = order == Order::kVectors || (order == Order::kStop && result_);
  if (!stays) all_go_on = let_go();
  ended_ = order == Order::kEnd || !all_go_on;
}

// First come the steps for which the process may run on: attaching does not stop it.
Expected<void> Attachment::stop_all() {
  threads_.clear();
  // Once a whole pass finds no thread that is not held, there is nobody left to make one.
  for (int round = 0; round < kMaxRounds; ++round) {
    const auto found = seize_new();
    if (!found) return Failure(found.error());
    if (!*found) break;
    interrupt_new();
    await_stops();
    if (all_are_stopped()) break;
  }
  if (held_.empty()) return system_error("no such process", static_cast<std::uint64_t>(pid_), ESRCH);
  return read_registers();
}

Expected<bool> Attachment::seize_new() {
  bool found = false;
  for (const pid_t id : os::list_ids(tasks_.get(), kMaxThreads)) {
    if (seen_.contains(id)) continue;
    if (::ptrace(PTRACE_SEIZE, id, nullptr, nullptr) != 0) {
      const int error = errno;
      if (error == ESRCH || is_dead(pid_, id)) continue;  // ended meanwhile, or a main thread that ended before others
      if (is_kernel_thread(pid_))
        return fail(ErrorCode::kUnsupported, "a thread of the kernel has no user stack",
                    static_cast<std::uint64_t>(pid_));
      const pid_t tracer = other_tracer(pid_, id);
      return system_error(tracer != 0 ? "process is traced already" : "may not trace the process",
                          static_cast<std::uint64_t>(tracer), error);
    }
    held_.push_back({id});
    seen_.insert(id);
    found = true;
  }
  return found;
}

void Attachment::interrupt_new() {
  if (stopped_since_ns_ == 0) {
    stopped_since_ns_ = monotonic_ns();
    deadline_ns_ = stopped_since_ns_ + std::uint64_t{options_.stop_timeout_ms} * 1'000'000;
  }
  for (Held& thread : held_) {
    if (thread.interrupted) continue;
    thread.interrupted = true;
    ::ptrace(PTRACE_INTERRUPT, thread.id, nullptr, nullptr);
  }
}

// The folder of threads has a link for each, "." and "..": proc_task_getattr() (fs/proc/base.c). A main thread that has
// ended before others counts, too, and is looked for in another pass.
bool Attachment::all_are_stopped() const {
  struct stat status {};
  const auto stopped = static_cast<std::size_t>(std::ranges::count_if(held_, &Held::stopped));
  return ::fstat(tasks_.get(), &status) == 0 && status.st_nlink == stopped + 2;
}

// True once it has stopped or ended.
bool Attachment::poll_stop(Held& thread) const {
  int status = 0;
  const pid_t got = ::waitpid(thread.id, &status, __WALL | WNOHANG);
  if (got == 0) return false;
  if (got < 0 || !WIFSTOPPED(status)) {
    thread.gone = true;
    return true;
  }
  thread.stopped = true;
  // A signal may have come first: it is kept for later. PTRACE_EVENT_STOP is ours, or a job-control stop, which
  // detaching keeps.
  if (status >> 16 == 0) thread.signal = WSTOPSIG(status);
  return true;
}

void Attachment::await_stops() {
  const ShortSleeps precisely;
  long pause_ns = 0;
  for (Held& thread : held_) {
    if (thread.stopped || thread.gone) continue;
    while (!poll_stop(thread)) {
      if (monotonic_ns() > deadline_ns_) break;
      const timespec pause{0, pause_ns};
      if (pause_ns == 0)
        sched_yield();
      else
        nanosleep(&pause, nullptr);
      pause_ns = std::min(pause_ns + 20'000, 1'000'000L);
    }
  }
}

Expected<void> Attachment::read_registers() {
  if (!architecture_) architecture_ = find_architecture_();
  const Architecture architecture = *architecture_;
  for (const Held& held : held_) {
    if (held.gone) continue;
    StoppedThread thread{held.id, Registers(architecture), held.stopped};
    if (!held.stopped) {
      if (const auto known = waiting_registers(pid_, held.id, architecture)) thread.registers = *known;
      threads_.push_back(thread);
      continue;
    }
    std::byte bytes[1024];
    iovec out{bytes, sizeof bytes};
    if (::ptrace(PTRACE_GETREGSET, held.id, NT_PRSTATUS, &out) != 0) {
      if (errno == ESRCH) continue;  // killed
      return system_error("cannot read registers", static_cast<std::uint64_t>(held.id));
    }
    if (out.iov_len != general_registers_size(architecture))
      return fail(ErrorCode::kUnsupported, "a thread runs another machine's code than its program's",
                  static_cast<std::uint64_t>(held.id), out.iov_len);
    const auto registers = general_registers(architecture, ByteView(bytes, out.iov_len));
    if (!registers) return Failure(registers.error());
    thread.registers = *registers;
    if (works_for_kernel(pid_, thread)) {
      threads_.push_back({held.id, Registers(architecture), true, true});
      continue;
    }
    if (architecture == Architecture::kAArch64) {
      out = {bytes, sizeof bytes};
      if (::ptrace(PTRACE_GETREGSET, held.id, NT_FPREGSET, &out) == 0)
        (void)add_vector_registers(thread.registers, ByteView(bytes, out.iov_len));
      std::uint64_t masks[2] = {};  // user_pac_mask: of data, of instructions
      out = {masks, sizeof masks};
      if (::ptrace(PTRACE_GETREGSET, held.id, NT_ARM_PAC_MASK, &out) == 0) pac_mask_ = masks[1];
    }
    threads_.push_back(thread);
  }
  return {};
}

void Attachment::read_vectors() {
  vectors_.assign(1024, std::byte{});
  iovec out{vectors_.data(), vectors_.size()};
  if (::ptrace(PTRACE_GETREGSET, wanted_, NT_PRFPREG, &out) != 0) out.iov_len = 0;
  vectors_.resize(out.iov_len);
}

// Threads that never stopped cannot be detached: false, and this thread's end, which must follow, does it for them.
bool Attachment::let_go() {
  bool all = true;
  for (const Held& held : held_) {
    if (held.stopped) ::ptrace(PTRACE_DETACH, held.id, nullptr, static_cast<std::uintptr_t>(held.signal));
    all &= held.stopped || held.gone;
  }
  if (stopped_since_ns_ != 0) stood_ns_ = monotonic_ns() - stopped_since_ns_;
  stopped_since_ns_ = 0;
  held_.clear();
  seen_.clear();
  return all;
}

}  // namespace windlass::walk
