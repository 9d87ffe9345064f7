#include "cli/mcp_child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "os/descriptor.h"

namespace windlass::cli {
namespace {

using ChildClock = std::chrono::steady_clock;

// Time for a child to end by itself once it was asked to: `record` still writes its profile.
constexpr auto kToEnd = std::chrono::seconds(10);

struct Pipe {
  os::Descriptor read_end, write_end;
  static Pipe make() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return {};
    return {os::Descriptor(ends[0]), os::Descriptor(ends[1])};
  }
};

std::atomic<pid_t> running_child = 0;  // 0: none
static_assert(std::atomic<pid_t>::is_always_lock_free, "read by a signal handler");

// SIGTERM lets `record` write its profile.
[[noreturn]] void become_windlass(char* const* words, int out, int err, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (getppid() == parent && nothing >= 0) {
    dup2(nothing, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    execv("/proc/self/exe", words);
  }
  _exit(3);
}

pid_t spawn(std::vector<std::string>& arguments, int out, int err) {
  std::vector<char*> words;
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  const pid_t parent = getpid(), child = fork();
  if (child == 0) become_windlass(words.data(), out, err, parent);
  return child;
}

// Reads one pipe. False: it has ended.
bool take(int fd, std::string& to, bool& too_much) {
  std::array<char, 65536> buffer;
  const ssize_t got = ::read(fd, buffer.data(), buffer.size());
  if (got < 0 && errno == EINTR) return true;
  if (got <= 0) return false;
  const std::size_t room = kMostOfChild - to.size(), size = static_cast<std::size_t>(got);
  too_much |= size > room;
  to.append(buffer.data(), std::min(size, room));
  return true;
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  running_child = 0;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void end_child_and_this(int signal) {
  if (running_child > 0) kill(running_child, SIGTERM);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

void end_child_by_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, end_child_and_this);
}

ChildOutput run_windlass(std::vector<std::string> arguments, std::chrono::milliseconds most, const ChildWatch& watch) {
  ChildOutput output;
  arguments.insert(arguments.begin(), "windlass");
  Pipe out = Pipe::make(), err = Pipe::make();
  const pid_t child = out.read_end && err.read_end ? spawn(arguments, out.write_end.get(), err.write_end.get()) : -1;
  if (child < 0) return {.out = {}, .err = std::strerror(errno), .status = 3};
  running_child = child;
  out.write_end = os::Descriptor();
  err.write_end = os::Descriptor();
  auto until = ChildClock::now() + most;
  const auto stop = [&] {
    output.stopped = true;
    until = ChildClock::now() + kToEnd;
    kill(child, SIGTERM);
  };
  while (out.read_end || err.read_end) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - ChildClock::now());
    if (left.count() <= 0 && output.stopped) break;
    if (left.count() <= 0 || (output.too_much && !output.stopped)) {
      stop();
      continue;
    }
    pollfd wanted[] = {{out.read_end.get(), POLLIN, 0},
                       {err.read_end.get(), POLLIN, 0},
                       {output.stopped ? -1 : watch.descriptor(), POLLIN, 0}};
    if (poll(wanted, std::size(wanted), static_cast<int>(left.count()) + 1) < 0) continue;
    if (wanted[0].revents != 0 && !take(wanted[0].fd, output.out, output.too_much)) out.read_end = os::Descriptor();
    if (wanted[1].revents != 0 && !take(wanted[1].fd, output.err, output.too_much)) err.read_end = os::Descriptor();
    if (wanted[2].revents != 0 && watch.has_to_stop()) stop();
  }
  if (out.read_end || err.read_end) kill(child, SIGKILL);
  output.status = wait_for(child);
  return output;
}

}  // namespace windlass::cli
