// A program that runs while a test looks at it, its output in a file. It ends with the test.
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace windlass::test {

class ChildProgram {
 public:
  // `words`: the program's path and its arguments. Its output to `descriptor` goes to the file `output`. It has no
  // input, even if the test has one. Returns when the program runs: before that the child is the test itself.
  ChildProgram(std::vector<std::string> words, std::string output, int descriptor,
               const std::vector<std::pair<std::string, std::string>>& environment = {})
      : output_(std::move(output)) {
    int until_exec[2];
    if (::pipe2(until_exec, O_CLOEXEC) != 0) return;
    pid_ = ::fork();
    if (pid_ != 0) {
      char none = 0;
      ::close(until_exec[1]);
      (void)!::read(until_exec[0], &none, 1);
      ::close(until_exec[0]);
      return;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> raw;
    for (std::string& word : words) raw.push_back(word.data());
    raw.push_back(nullptr);
    const int none = ::open("/dev/null", O_RDONLY);
    if (none < 0 || ::dup2(none, STDIN_FILENO) < 0) ::_exit(2);
    const int file = ::open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || ::dup2(file, descriptor) < 0) ::_exit(2);
    ::execv(raw[0], raw.data());
    ::_exit(1);
  }
  ~ChildProgram() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
  }
  ChildProgram(const ChildProgram&) = delete;
  ChildProgram& operator=(const ChildProgram&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool runs() const {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
  }
  // Until it ends by itself.
  void wait() {
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  [[nodiscard]] const std::string& output() const { return output_; }

 private:
  pid_t pid_ = -1;
  std::string output_;
};

}  // namespace windlass::test
