#include "symbols/debuginfod_program.h"

#include <fcntl.h>
#include <poll.h>
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
#include "os/program.h"

namespace windlass::symbols {
namespace {

using Clock = std::chrono::steady_clock;

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
    const char* const arguments[] = {"debuginfod-find", kind, digits.c_str(), source, nullptr};
    child = os::start_program(arguments, in.get());
  }
  if (child < 0) return -1;
  std::string path = read_path(out.get(), patience);
  if (path.empty()) ::kill(child, SIGKILL);
  const int status = os::wait_for_program(child);
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
