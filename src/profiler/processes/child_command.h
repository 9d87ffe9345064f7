// The command that `record` starts: held back before its first instruction until the profiler is ready.
#pragma once

#include <sys/types.h>

#include <expected>
#include <optional>
#include <string>
#include <vector>

#include "profiler/doctor/system_error.h"

namespace windlass::profiler {

// The path that execvp finds a command by; empty if it finds none.
[[nodiscard]] std::string find_command(const std::string& name);

class ChildCommand {
 public:
  // Forks; the child waits. Signals that the caller blocked are unblocked in it. `environment`: NAME=VALUE, which the
  // command gets besides, or in place of, this program's.
  static std::expected<ChildCommand, SystemError> start(const std::vector<std::string>& arguments,
                                                        const std::vector<std::string>& environment = {});
  ChildCommand(ChildCommand&& other) noexcept;
  ~ChildCommand();  // a child never released is killed

  [[nodiscard]] pid_t pid() const { return pid_; }
  // Lets it exec. The error of the exec, if it fails.
  [[nodiscard]] std::expected<void, SystemError> release();
  // As a shell would report it: exit code, or 128 + signal. Empty while it runs.
  [[nodiscard]] std::optional<int> poll_status();
  [[nodiscard]] std::optional<int> status() const { return status_; }  // as last polled
  // Waits for its end.
  int wait();
  void signal(int number) const;

 private:
  ChildCommand() = default;
  pid_t pid_ = -1;
  int go_ = -1;      // written to release it
  int failed_ = -1;  // the child's errno, or end of file once exec succeeded
  std::string name_;
  std::optional<int> status_;
};

}  // namespace windlass::profiler
