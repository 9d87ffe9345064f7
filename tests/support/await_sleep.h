// Until a program that a test has started waits for something.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

namespace windlass::test {

// Does every thread of the process sleep? In /proc/PID/task/TID/stat the state stands behind the name.
inline bool all_threads_sleep(pid_t pid) {
  bool any = false;
  std::error_code gone;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone)) {
    std::ifstream file(thread.path() / "stat");
    std::string text;
    std::getline(file, text);
    const std::size_t name_end = text.rfind(')');
    if (name_end == std::string::npos || text.compare(name_end, 3, ") S") != 0) return false;
    any = true;
  }
  return any;
}

// Waits until all its threads sleep, and do so a little later. False: five minutes have gone.
inline bool await_sleep(pid_t pid) {
  constexpr std::chrono::milliseconds kLittle{20};
  for (int tries = 0; tries < 15'000; ++tries) {
    const bool before = all_threads_sleep(pid);
    std::this_thread::sleep_for(kLittle);
    if (before && all_threads_sleep(pid)) return true;
  }
  return false;
}

}  // namespace windlass::test
