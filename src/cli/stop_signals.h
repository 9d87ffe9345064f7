// SIGINT, SIGTERM and SIGHUP as a readable descriptor: they end what a command does, and the command then ends in
// order.
#pragma once

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

#include "os/descriptor.h"

namespace windlass::cli {

// To be made before any thread starts: threads inherit the blocked signals.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&set_);
    for (const int number : kNumbers) sigaddset(&set_, number);
    sigprocmask(SIG_BLOCK, &set_, nullptr);
    descriptor_ = os::Descriptor(signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  // Readable once a signal has come.
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  // Takes the signals that have come. Was SIGHUP the only one?
  [[nodiscard]] bool take_hangup() {
    bool hangup = false, other = false;
    signalfd_siginfo info;
    while (read(descriptor(), &info, sizeof info) == static_cast<ssize_t>(sizeof info))
      (info.ssi_signo == SIGHUP ? hangup : other) = true;
    return hangup && !other;
  }
  // The descriptor is readable again once another signal has come.
  void forget() {
    signalfd_siginfo info;
    while (read(descriptor(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) continue;
  }
  // From here on the next signal of each kind does nothing, since what it asks for is under way. The one after kills.
  void pass_over_one() {
    forget();
    for (const int number : kNumbers) exchange(number, SIG_DFL, pass_over, SA_RESETHAND | SA_RESTART);
    sigprocmask(SIG_UNBLOCK, &set_, nullptr);
  }
  // From here on the next signal kills, as an impatient user expects.
  void release() {
    forget();
    for (const int number : kNumbers) exchange(number, pass_over, SIG_DFL, 0);
    sigprocmask(SIG_UNBLOCK, &set_, nullptr);
  }

 private:
  static constexpr int kNumbers[] = {SIGINT, SIGTERM, SIGHUP};
  using Handler = void (*)(int);

  static void pass_over(int /*number*/) {}
  // Where a signal is ignored (nohup), it stays ignored.
  static void exchange(int number, Handler from, Handler to, int flags) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0 || action.sa_handler != from) return;
    action = {};
    action.sa_handler = to;
    action.sa_flags = flags;
    (void)sigaction(number, &action, nullptr);
  }

  sigset_t set_{};
  os::Descriptor descriptor_;
};

}  // namespace windlass::cli
