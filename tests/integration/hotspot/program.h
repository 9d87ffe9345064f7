// Java of our own on the Java virtual machines of this machine.
#pragma once

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/run_command.h"

namespace windlass::test {

inline const std::string kHotSpotFolder = WINDLASS_HOTSPOT_DIRECTORY;

// The launchers that there are: the default one first.
inline std::vector<std::string> java_launchers() {
  std::vector<std::string> found;
  std::istringstream list(
      run("for j in $(command -v java) /usr/lib/jvm/*/bin/java; do test -x $j && readlink -f $j; done | awk '!s[$0]++'")
          .output);
  for (std::string line; std::getline(list, line);) found.push_back(line);
  return found;
}

// Makes Chains.class. Empty: it is there; else why not.
inline std::string make_chains() {
  if (run("command -v java javac").status != 0) return "no java or javac";
  const auto made = run("javac --release 17 -d " + kHotSpotFolder + " " WINDLASS_HOTSPOT_SOURCES "/Chains.java 2>&1");
  return made.status == 0 ? "" : "Chains.java cannot be compiled: " + made.output;
}

class JavaProgram {
 public:
  JavaProgram(const std::string& launcher, std::vector<std::string> options, const std::vector<std::string>& arguments)
      : output_(kHotSpotFolder + "/output." + std::to_string(::getpid())) {
    std::vector<std::string> words = {launcher};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"-cp", kHotSpotFolder, "Chains"});
    words.insert(words.end(), arguments.begin(), arguments.end());
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::vector<char*> raw;
    for (std::string& word : words) raw.push_back(word.data());
    raw.push_back(nullptr);
    if (std::freopen(output_.c_str(), "w", stdout) == nullptr) ::_exit(2);
    ::execv(raw[0], raw.data());
    ::_exit(1);
  }
  ~JavaProgram() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    (void)std::remove(output_.c_str());
  }
  JavaProgram(const JavaProgram&) = delete;
  JavaProgram& operator=(const JavaProgram&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  // What it has printed once it says READY; empty: it has ended before.
  [[nodiscard]] std::vector<std::string> printed() const {
    for (;;) {
      std::vector<std::string> lines;
      std::ifstream file(output_);
      for (std::string line; std::getline(file, line);) {
        lines.push_back(line);
        if (line == "READY") return lines;
      }
      siginfo_t info{};
      if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0)
        return {};
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

 private:
  pid_t pid_ = -1;
  std::string output_;
};

}  // namespace windlass::test
