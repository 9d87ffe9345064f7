// Signals of a timer, which interrupt what waits: StepJudge's steps end by the second one that comes while they wait.
#pragma once

#include <sys/time.h>

#include <csignal>

namespace windlass::test {

class Alarms {
 public:
  // Microseconds, less than a second.
  explicit Alarms(suseconds_t period) {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    ::sigaction(SIGALRM, &action, &before_);
    set(period);
  }
  ~Alarms() { set(0), ::sigaction(SIGALRM, &before_, nullptr); }
  Alarms(const Alarms&) = delete;
  Alarms& operator=(const Alarms&) = delete;

 private:
  static void set(suseconds_t period) {
    const itimerval timer = {{0, period}, {0, period}};
    ::setitimer(ITIMER_REAL, &timer, nullptr);
  }
  struct sigaction before_ {};
};

}  // namespace windlass::test
