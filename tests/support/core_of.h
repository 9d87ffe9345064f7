// A core file of a process that lives, by gcore, as long as this lives.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>

#include "support/run_command.h"

namespace windlass::test {

class CoreOf {
 public:
  CoreOf(pid_t pid, const std::string& prefix) : path_(prefix + "." + std::to_string(pid)) {
    if (run("command -v gcore").status != 0)
      why_not_ = "SKIPPED: no gcore";
    else if (run("gcore -o " + prefix + " " + std::to_string(pid) + " 2>&1").status != 0)
      why_not_ = "SKIPPED: gcore does not work here";
  }
  ~CoreOf() { (void)std::remove(path_.c_str()); }
  CoreOf(const CoreOf&) = delete;
  CoreOf& operator=(const CoreOf&) = delete;

  // Empty: it is there; else what to skip with.
  [[nodiscard]] const std::string& why_not() const { return why_not_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_, why_not_;
};

}  // namespace windlass::test
