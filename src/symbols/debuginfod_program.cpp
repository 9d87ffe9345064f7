#include "symbols/debuginfod_program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include "os/descriptor.h"
#include "os/mapped_files.h"

namespace windlass::symbols {
namespace {

using Clock = std::chrono::steady_clock;

// `debuginfod-find KIND BUILDID [SOURCE]`, without a shell, with its output in `out` and nothing else of ours; -1: not
// started.
pid_t start(const char* kind, const std::string& build_id, const char* source, int out) {
  posix_spawn_file_actions_t actions;
  if (posix_spawn_file_actions_init(&actions) != 0) return -1;
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);  // first: it may be 0 or 2 itself
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  const std::array<const char*, 5> arguments{"debuginfod-find", kind, build_id.c_str(), source, nullptr};
  pid_t child = -1;
  const int error =
      posix_spawnp(&child, arguments[0], &actions, &attributes, const_cast<char* const*>(arguments.data()), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? child : -1;
}

// What it prints until it ends. Nothing, if that is no path or takes too long.
std::string read_path(int from, std::chrono::milliseconds patience) {
  std::string text;
  const auto deadline = Clock::now() + patience;
  while (text.size() <= PATH_MAX) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready{.fd = from, .events = POLLIN, .revents = 0};
    const int count = left > 0 ? ::poll(&ready, 1, static_cast<int>(left)) : 0;
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return {};
    std::array<char, 512> some{};
    const ssize_t got = ::read(from, some.data(), some.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return {};
    if (got == 0) return text;
    text.append(some.data(), static_cast<std::size_t>(got));
  }
  return {};
}

int find(const char* kind, const std::string& digits, std::chrono::milliseconds patience, const char* source) {
  const char* servers = std::getenv("DEBUGINFOD_URLS");
  if (servers == nullptr || *servers == '\0' || digits.empty()) return -1;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return -1;
  const os::Descriptor out(ends[0]);
  pid_t child = -1;
  {
    const os::Descriptor in(ends[1]);  // closed here: the child's is then the only one
    child = start(kind, digits, source, in.get());
  }
  if (child < 0) return -1;
  std::string path = read_path(out.get(), patience);
  if (path.empty()) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  if (path.ends_with('\n')) path.pop_back();
  if (status != 0 || !path.starts_with('/')) return -1;
  return os::open_regular(path);
}

}  // namespace

int find_by_debuginfod(const char* kind, std::span<const unsigned char> build_id, std::chrono::milliseconds patience) {
  std::string digits;
  for (const unsigned char byte : build_id) digits += fmt::format("{:02x}", byte);
  return find(kind, digits, patience, nullptr);
}

int find_source_by_debuginfod(const std::string& build_id, const std::string& path) {
  const auto is_digit = [](unsigned char digit) { return std::isxdigit(digit) != 0; };
  // Servers know full paths. Neither text may be an option.
  if (!std::ranges::all_of(build_id, is_digit) || !path.starts_with('/')) return -1;
  return find("source", build_id, kDebuginfodPatience, path.c_str());
}

}  // namespace windlass::symbols
