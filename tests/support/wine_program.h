// A Windows program started under Wine, its standard output in a pipe. Each prefix is its tests' own, and the server of
// it ends with the last program in it.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace windlass::test {

// The loader, not the shell script around it; empty: there is none.
inline std::string find_wine() {
  for (const char* path : {"/usr/lib/wine/wine64", "/usr/bin/wine64-stable", "/usr/bin/wine64", "/usr/bin/wine"})
    if (::access(path, X_OK) == 0) return path;
  return {};
}

class WineProgram {
 public:
  WineProgram(const std::string& prefix, std::vector<std::string> command) {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) return;
    command.insert(command.begin(), find_wine());
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(fds[1], 1);
      // Wine's services outlive the program now and then. They would keep the test's own error output open, to whose
      // end ctest reads.
      ::dup2(::open("/dev/null", O_WRONLY | O_CLOEXEC), 2);
      ::setenv("WINEPREFIX", prefix.c_str(), 1);
      ::setenv("WINEDEBUG", "-all", 1);
      ::setenv("WINEDLLOVERRIDES", "mscoree=;mshtml=;winemenubuilder.exe=", 1);
      ::unsetenv("DISPLAY");
      std::vector<char*> arguments;
      for (std::string& argument : command) arguments.push_back(argument.data());
      arguments.push_back(nullptr);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    ::close(fds[1]);
    output_ = fds[0];
  }
  ~WineProgram() {
    if (pid_ > 0 && !ended_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    if (output_ >= 0) ::close(output_);
  }
  WineProgram(const WineProgram&) = delete;
  WineProgram& operator=(const WineProgram&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }

  // The next line of output without its end; empty where none comes within `seconds`.
  std::string line(int seconds) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    for (;;) {
      if (const auto end = text_.find('\n'); end != std::string::npos) {
        std::string line = text_.substr(0, end);
        text_.erase(0, end + 1);
        if (line.ends_with('\r')) line.pop_back();
        return line;
      }
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
      pollfd waiting{output_, POLLIN, 0};
      if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) <= 0) return {};
      char buffer[4096];
      const ssize_t got = ::read(output_, buffer, sizeof buffer);
      if (got <= 0) return {};
      text_.append(buffer, static_cast<std::size_t>(got));
    }
  }

  // Its exit status once it has ended by itself.
  int wait() {
    int status = -1;
    ::waitpid(pid_, &status, 0);
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  bool ended_ = false;
  std::string text_;
};

// The stacks that a program of tests/workloads prints before its threads wait: a line each, a name and code addresses.
// By name; fewer than `lines` if it did not start its threads.
inline std::map<std::string, std::vector<std::uint64_t>> read_stacks(WineProgram& program, std::size_t lines) {
  std::map<std::string, std::vector<std::uint64_t>> stacks;
  for (std::size_t i = 0; i < lines; ++i) {
    std::istringstream line(program.line(i == 0 ? 600 : 300));  // a new prefix takes a while
    std::string name, pc;
    line >> name;
    while (line >> pc) stacks[name].push_back(std::stoull(pc, nullptr, 16));
  }
  ::usleep(100'000);  // from the line to the wait
  return stacks;
}

}  // namespace windlass::test
