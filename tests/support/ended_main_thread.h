// A child process whose first thread has ended while another one lives on, as after pthread_exit() in main.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "os/proc_file.h"

namespace windlass::test {

class EndedMainThread {
 public:
  // The other thread calls `run`, which does not return.
  explicit EndedMainThread(void* (*run)(void*)) {
    auto* started = static_cast<std::atomic<int>*>(
        ::mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      static void* (*the_run)(void*) = run;
      pthread_t thread;
      const auto begin = [](void* flag) -> void* {
        *static_cast<std::atomic<int>*>(flag) = static_cast<int>(::syscall(SYS_gettid));
        return the_run(nullptr);
      };
      if (pthread_create(&thread, nullptr, begin, started) != 0) ::_exit(1);
      ::syscall(SYS_exit, 0);  // this thread alone
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(300);
    while (!ready_ && std::chrono::steady_clock::now() < end) {
      const std::string status = os::read_proc_file("/proc/" + std::to_string(pid_) + "/status");
      ready_ = *started != 0 && os::status_field(status, "State").starts_with("Z");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    thread_ = *started;
    ::munmap(started, sizeof(int));
  }
  ~EndedMainThread() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  EndedMainThread(const EndedMainThread&) = delete;
  EndedMainThread& operator=(const EndedMainThread&) = delete;

  [[nodiscard]] bool ready() const { return ready_; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] pid_t thread() const { return thread_; }  // that lives

 private:
  pid_t pid_ = 0, thread_ = 0;
  bool ready_ = false;
};

}  // namespace windlass::test
