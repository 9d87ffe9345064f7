#include "os/program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace windlass::os {

pid_t start_program(const char* const arguments[], int out, int file) {
  constexpr int kFile = STDERR_FILENO + 1;
  // Neither may be overwritten before it has become what it is meant for.
  const int given_out = ::fcntl(out, F_DUPFD_CLOEXEC, kFile + 1);
  const int given_file = file < 0 ? -1 : ::fcntl(file, F_DUPFD_CLOEXEC, kFile + 1);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  posix_spawn_file_actions_adddup2(&actions, given_out, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  if (given_file >= 0) posix_spawn_file_actions_adddup2(&actions, given_file, kFile);
  posix_spawn_file_actions_addclosefrom_np(&actions, given_file >= 0 ? kFile + 1 : kFile);
  pid_t child = -1;
  const int error =
      given_out < 0 || (file >= 0 && given_file < 0)
          ? EMFILE
          : posix_spawnp(&child, arguments[0], &actions, &attributes, const_cast<char* const*>(arguments), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (given_out >= 0) ::close(given_out);
  if (given_file >= 0) ::close(given_file);
  errno = error;
  return error == 0 ? child : -1;
}

int wait_for_program(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  return status;
}

}  // namespace windlass::os
