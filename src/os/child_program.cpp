#include "os/child_program.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>

#include "os/descriptor.h"

namespace windlass::os {
namespace {

using Clock = std::chrono::steady_clock;

// A copy that is none of the numbers that the child gets: those would overwrite each other.
Descriptor away(int descriptor, int above) { return Descriptor(::fcntl(descriptor, F_DUPFD_CLOEXEC, above)); }

// The child has no descriptor from `first` on.
void close_from(int first, posix_spawn_file_actions_t& actions) {
#ifdef __GLIBC__
  posix_spawn_file_actions_addclosefrom_np(&actions, first);
#else  // musl has no such function, and takes a descriptor that is closed already
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir("/proc/self/fd"), ::closedir);
  while (const dirent* entry = open ? ::readdir(open.get()) : nullptr)
    if (const int descriptor = std::atoi(entry->d_name); descriptor >= first)
      posix_spawn_file_actions_addclose(&actions, descriptor);
#endif
}

// An errno; `child` is set if it is 0.
int spawn(const ChildProgram& program, int out, pid_t& child) {
  std::vector<Descriptor> copies;
  const int first_free = STDERR_FILENO + 1 + static_cast<int>(program.inherited.size());
  for (const int descriptor : program.inherited) copies.push_back(away(descriptor, first_free));
  const Descriptor output = away(out, first_free);
  const Descriptor input = away(program.input, first_free);

  posix_spawn_file_actions_t actions;
  if (const int error = posix_spawn_file_actions_init(&actions); error != 0) return error;
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  sigset_t defaults;  // what is ignored here would be ignored there
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawn_file_actions_adddup2(&actions, output.get(), STDOUT_FILENO);
  if (input)
    posix_spawn_file_actions_adddup2(&actions, input.get(), STDIN_FILENO);
  else
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  for (std::size_t i = 0; i < copies.size(); ++i)
    posix_spawn_file_actions_adddup2(&actions, copies[i].get(), STDERR_FILENO + 1 + static_cast<int>(i));
  close_from(first_free, actions);
  std::vector<const char*> arguments = program.arguments;
  arguments.push_back(nullptr);
  const int error =
      posix_spawnp(&child, arguments[0], &actions, &attributes, const_cast<char* const*>(arguments.data()), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// To the end of file.
Expected<void> read_output(int from, std::chrono::milliseconds patience, const TakeOutput& take) {
  const auto deadline = Clock::now() + patience;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready{.fd = from, .events = POLLIN, .revents = 0};
    const int count = left > 0 ? ::poll(&ready, 1, static_cast<int>(left)) : 0;
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return fail(ErrorCode::kSystem, "a program did not end in time", 0, ETIMEDOUT);
    std::array<char, 16384> some;
    const ssize_t got = ::read(from, some.data(), some.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(ErrorCode::kSystem, "cannot read what a program prints", 0, errno);
    if (got == 0) return {};
    if (const auto taken = take({some.data(), static_cast<std::size_t>(got)}); !taken) return taken;
  }
}

}  // namespace

Expected<int> run_program(const ChildProgram& program, const TakeOutput& take) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail(ErrorCode::kSystem, "cannot make a pipe", 0, errno);
  const Descriptor from(ends[0]);
  pid_t child = -1;
  int error = 0;
  {
    const Descriptor out(ends[1]);  // closed here: the child's is then the only one
    error = spawn(program, out.get(), child);
  }
  if (error == ENOENT) return fail(ErrorCode::kNotFound, "there is no such program", 0, ENOENT);
  if (error != 0) return fail(ErrorCode::kSystem, "cannot start a program", 0, static_cast<std::uint64_t>(error));
  const auto output = read_output(from.get(), program.patience, take);
  if (!output) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  if (!output) return Failure(output.error());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Expected<ChildEnd> run_program(const ChildProgram& program) {
  std::string output;
  const auto status = run_program(program, [&](std::string_view some) -> Expected<void> {
    output += some;
    if (output.size() <= program.most_bytes) return {};
    return fail(ErrorCode::kLimit, "a program printed too much", output.size());
  });
  if (!status) return Failure(status.error());
  return ChildEnd{.status = *status, .output = std::move(output)};
}

}  // namespace windlass::os
