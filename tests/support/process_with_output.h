// A child process, its output in a file.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

namespace windlass::test {

using Arguments = std::vector<std::string>;

class Process {
 public:
  explicit Process(const Arguments& arguments, const std::filesystem::path& output = "/dev/null") {
    std::vector<char*> argv;
    for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      const int fd = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      dup2(fd, 1);
      dup2(fd, 2);
      execvp(argv[0], argv.data());
      _exit(126);
    }
  }
  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }
  void signal(int number) const { kill(pid_, number); }
  // As a shell reports it.
  int wait() {
    int status = 0;
    wait4(pid_, &status, 0, &usage_);
    pid_ = -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  [[nodiscard]] long peak_kib() const { return usage_.ru_maxrss; }

 private:
  pid_t pid_ = -1;
  rusage usage_{};
};

}  // namespace windlass::test
