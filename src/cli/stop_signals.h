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
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set_, number);
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
  // From here on the next signal kills, as an impatient user expects.
  void release() {
    forget();
    sigprocmask(SIG_UNBLOCK, &set_, nullptr);
  }

 private:
  sigset_t set_{};
  os::Descriptor descriptor_;
};

}  // namespace windlass::cli
