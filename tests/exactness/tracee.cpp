#include "exactness/tracee.h"

#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace windlass::exactness {
namespace {

std::string proc_path(int pid, const char* name) { return "/proc/" + std::to_string(pid) + "/" + name; }

bool wait_for(int pid, int& status) {
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return false;
  return true;
}

}  // namespace

std::string Tracee::start(char* const argv[]) {
  pid_ = ::fork();
  if (pid_ < 0) return "fork fails";
  if (pid_ == 0) {
    ::personality(ADDR_NO_RANDOMIZE);
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::execvp(argv[0], argv);
    ::_exit(127);
  }
  int status = 0;
  if (!wait_for(pid_, status) || !WIFSTOPPED(status)) {
    pid_ = -1;
    return std::string("cannot execute ") + argv[0];
  }
  ::ptrace(PTRACE_SETOPTIONS, pid_, nullptr, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD);
  open_memory();
  reload();
  fetch_state();
  return {};
}

Tracee::~Tracee() {
  if (memory_ >= 0) ::close(memory_);
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  (void)wait_for(pid_, status);
}

Tracee::Event Tracee::step() {
  delivered_ = signal_ != 0;
  const auto signal = static_cast<std::uintptr_t>(signal_);
  signal_ = 0;
  int status = 0;
  if (::ptrace(PTRACE_SINGLESTEP, pid_, nullptr, signal) != 0 || !wait_for(pid_, status) || !WIFSTOPPED(status)) {
    pid_ = -1;  // reaped
    return Event::kGone;
  }
  fetch_state();
  if (WSTOPSIG(status) == SIGTRAP) return Event::kStepped;
  signal_ = WSTOPSIG(status) == SIGSTOP ? 0 : WSTOPSIG(status);
  return Event::kSignal;
}

bool Tracee::run_past_system_call(std::uint64_t number, std::uint64_t times) {
  constexpr int kSystemCallStop = SIGTRAP | 0x80;  // PTRACE_O_TRACESYSGOOD
  std::uintptr_t signal = 0;
  for (bool found = false, inside = false;;) {
    int status = 0;
    if (::ptrace(PTRACE_SYSCALL, pid_, nullptr, signal) != 0 || !wait_for(pid_, status) || !WIFSTOPPED(status)) {
      pid_ = -1;
      return false;
    }
    const int stop = WSTOPSIG(status);
    signal = stop == kSystemCallStop || stop == SIGTRAP ? 0 : static_cast<std::uintptr_t>(stop);
    if (stop != kSystemCallStop) continue;
    inside = !inside;
    if (inside) {
      user_regs_struct r{};
      ::ptrace(PTRACE_GETREGS, pid_, nullptr, &r);
      found = number == kAnySystemCall || r.orig_rax == number;
    } else if (found && --times == 0) {
      mappings_changed(false);
      fetch_state();
      return true;
    }
  }
}

void Tracee::fetch_state() {
  user_regs_struct r{};
  ::ptrace(PTRACE_GETREGS, pid_, nullptr, &r);
  state_.reg = {r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8,
                r.r9,  r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rip};
}

void Tracee::open_memory() {
  if (memory_ >= 0) ::close(memory_);
  memory_ = ::open(proc_path(pid_, "mem").c_str(), O_RDWR | O_CLOEXEC);
}

bool Tracee::read(std::uint64_t address, void* to, std::size_t size) const {
  return ::pread(memory_, to, size, static_cast<off_t>(address)) == static_cast<ssize_t>(size);
}

bool Tracee::set_word(std::uint64_t address, std::uint64_t value) const {
  return ::pwrite(memory_, &value, sizeof value, static_cast<off_t>(address)) == static_cast<ssize_t>(sizeof value);
}

void Tracee::mappings_changed(bool executed) {
  ++generation_;
  if (executed) open_memory();  // an open /proc/PID/mem stays with the address space before the exec
  reload();
}

void Tracee::reload() {
  mappings_.clear();
  std::FILE* file = std::fopen(proc_path(pid_, "maps").c_str(), "r");
  if (file == nullptr) return;
  char line[8192];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    unsigned long long begin = 0, end = 0, offset = 0;
    char permissions[5] = {};
    int path_at = 0;
    if (std::sscanf(line, "%llx-%llx %4s %llx %*s %*s %n", &begin, &end, permissions, &offset, &path_at) < 4) continue;
    line[std::strcspn(line, "\n")] = '\0';
    mappings_.push_back({begin, end, offset, permissions[2] == 'x', path_at > 0 ? line + path_at : ""});
  }
  std::fclose(file);
}

const Mapping* Tracee::mapping(std::uint64_t address) const {
  const auto behind = std::upper_bound(mappings_.begin(), mappings_.end(), address,
                                       [](std::uint64_t a, const Mapping& m) { return a < m.begin; });
  return behind != mappings_.begin() && address < behind[-1].end ? &behind[-1] : nullptr;
}

std::uint64_t Tracee::entry() const {
  const int fd = ::open(proc_path(pid_, "auxv").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  std::uint64_t found = 0;
  Elf64_auxv_t entry;
  while (::read(fd, &entry, sizeof entry) == sizeof entry)
    if (entry.a_type == AT_ENTRY) found = entry.a_un.a_val;
  ::close(fd);
  return found;
}

}  // namespace windlass::exactness
