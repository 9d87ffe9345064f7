// The program symbolize/live.cpp, running.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>

namespace windlass::test {

class LiveProcess {
 public:
  // `before` runs in the child; false ends it.
  explicit LiveProcess(
      const std::string& program, const std::function<bool()>& before = [] { return true; }) {
    int in[2], out[2];
    if (::pipe(in) != 0 || ::pipe(out) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      for (const int fd : {in[0], in[1], out[0], out[1]}) ::close(fd);
      if (before()) ::execl(program.c_str(), "live", nullptr);
      ::_exit(1);
    }
    ::close(in[0]);
    ::close(out[1]);
    to_ = ::fdopen(in[1], "w");
    from_ = ::fdopen(out[0], "r");
    read_addresses();
  }
  ~LiveProcess() { end(); }
  LiveProcess(const LiveProcess&) = delete;
  LiveProcess& operator=(const LiveProcess&) = delete;

  // Loads a library; the symbol's address is then known.
  void load(const std::string& library, const std::string& symbol) {
    std::fprintf(to_, "load %s %s\n", library.c_str(), symbol.c_str());
    std::fflush(to_);
    read_addresses();
  }
  void end() {
    if (pid_ <= 0) return;
    std::fclose(to_);
    std::fclose(from_);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  [[nodiscard]] bool started() const { return !addresses_.empty(); }
  [[nodiscard]] std::uint64_t id() const { return static_cast<std::uint64_t>(pid_); }
  [[nodiscard]] std::uint64_t at(const std::string& name) const { return addresses_.at(name); }

 private:
  void read_addresses() {
    char line[1024], name[1024];
    while (std::fgets(line, sizeof line, from_) != nullptr) {
      unsigned long long address = 0;
      if (std::sscanf(line, "%1023s %llx", name, &address) != 2) break;  // "end"
      addresses_[name] = address;
    }
  }

  pid_t pid_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
  std::map<std::string, std::uint64_t> addresses_;
};

}  // namespace windlass::test
