#include "profiler/processes/child_command.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace windlass::profiler {
namespace {

std::unexpected<SystemError> refused(const std::string& what, int error) {
  if (error == EMFILE || error == ENFILE) return std::unexpected(too_many_open_files(error));
  return std::unexpected(system_error(fmt::format("{}: {}", what, std::strerror(error)), error));
}

std::string way_to_run(const std::string& name, int error) {
  const bool here = name.find('/') == std::string::npos && access(name.c_str(), F_OK) == 0;
  std::error_code ignored;
  if (std::filesystem::is_directory(name, ignored)) return ". Way out: name a program in this folder";
  if (error == ENOENT && here) return fmt::format(". Way out: ./{}, if the file of this folder is meant", name);
  if (error == ENOENT) return ". Way out: a program's path, or its name if PATH has its folder";
  if (error == EACCES) return fmt::format(". Way out: chmod +x {}, if it is a program", name);
  return {};
}

int shell_status(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

[[noreturn]] void run_child(int go, int failed, char** arguments, char** environment) {
  char byte = 0;
  if (read(go, &byte, 1) != 1) _exit(127);  // the profiler gave up
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvpe(arguments[0], arguments, environment);
  const int error = errno;
  if (write(failed, &error, sizeof error) != sizeof error) _exit(126);
  _exit(127);
}

// This program's environment, with `others` in place of what has their names.
std::vector<char*> environment_with(const std::vector<std::string>& others) {
  std::vector<char*> all;
  const auto replaced = [&](std::string_view variable) {
    return std::ranges::any_of(others, [&](const std::string& other) {
      return variable.starts_with(std::string_view(other).substr(0, other.find('=') + 1));
    });
  };
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    if (!replaced(*variable)) all.push_back(*variable);
  for (const std::string& other : others) all.push_back(const_cast<char*>(other.c_str()));
  all.push_back(nullptr);
  return all;
}

}  // namespace

std::string find_command(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/bin:/usr/bin";
  while (!rest.empty()) {
    const auto colon = rest.find(':');
    const std::string candidate = fmt::format("{}/{}", rest.substr(0, colon), name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    rest.remove_prefix(colon == std::string_view::npos ? rest.size() : colon + 1);
  }
  return {};
}

std::expected<ChildCommand, SystemError> ChildCommand::start(const std::vector<std::string>& arguments,
                                                             const std::vector<std::string>& environment) {
  int go[2], failed[2];
  if (pipe2(go, O_CLOEXEC) != 0) return refused("pipe for the command", errno);
  if (pipe2(failed, O_CLOEXEC) != 0) {
    const int error = errno;
    close(go[0]);
    close(go[1]);
    return refused("pipe for the command", error);
  }
  std::vector<char*> argv;  // made before the fork: the child must not allocate
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> variables = environment_with(environment);
  ChildCommand command;
  command.name_ = arguments.at(0);
  command.pid_ = fork();
  if (command.pid_ == 0) {
    close(go[1]);
    close(failed[0]);
    run_child(go[0], failed[1], argv.data(), variables.data());
  }
  const int error = errno;
  close(go[0]);
  close(failed[1]);
  command.go_ = go[1];
  command.failed_ = failed[0];
  if (command.pid_ < 0) return refused("starting the command", error);
  return command;
}

ChildCommand::ChildCommand(ChildCommand&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      go_(std::exchange(other.go_, -1)),
      failed_(std::exchange(other.failed_, -1)),
      name_(std::move(other.name_)),
      status_(other.status_) {}

ChildCommand::~ChildCommand() {
  const bool held = go_ >= 0;
  if (go_ >= 0) close(go_);
  if (failed_ >= 0) close(failed_);
  if (pid_ > 0 && held) waitpid(pid_, nullptr, 0);  // its read sees the end of the pipe and it exits
}

std::expected<void, SystemError> ChildCommand::release() {
  const char byte = 1;
  const bool written = write(go_, &byte, 1) == 1;
  close(std::exchange(go_, -1));
  if (!written) return refused("releasing the command", EPIPE);
  int error = 0;
  ssize_t got;
  do {
    got = read(failed_, &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  close(std::exchange(failed_, -1));
  if (got == sizeof error) {
    wait();
    SystemError cannot = refused(fmt::format("cannot run {}", name_), error).error();
    cannot.text += way_to_run(name_, error);
    return std::unexpected(std::move(cannot));
  }
  return {};
}

std::optional<int> ChildCommand::poll_status() {
  int status = 0;
  if (!status_ && pid_ > 0 && waitpid(pid_, &status, WNOHANG) == pid_) status_ = shell_status(status);
  return status_;
}

int ChildCommand::wait() {
  int status = 0;
  while (!status_) {
    if (waitpid(pid_, &status, 0) == pid_)
      status_ = shell_status(status);
    else if (errno != EINTR)
      status_ = 127;
  }
  return *status_;
}

void ChildCommand::signal(int number) const {
  if (!status_ && pid_ > 0) kill(pid_, number);
}

}  // namespace windlass::profiler
