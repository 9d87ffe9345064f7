// libdw asks debuginfod servers by a client that it gets by dlopen(), which a static program does not have. This file
// stands in for libdw's file of that client: whichever is linked is the one that dwfl_standard_find_debuginfo() asks.
#include <elfutils/libdwfl.h>

#include <chrono>
#include <map>
#include <mutex>
#include <string>

#include "symbols/debuginfod_program.h"

namespace windlass::symbols {
namespace {

// libdw asks once for symbols and once for lines. What no server had is not asked for again so soon, as libdw's client
// does (600 s).
int find_again(const char* kind, const unsigned char* build_id, std::size_t length) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kMissedFor(600);
  constexpr std::size_t kMostMisses = 4096;
  static std::mutex mutex;
  static std::map<std::string, Clock::time_point> misses;
  const std::string key = kind + std::string(reinterpret_cast<const char*>(build_id), length);
  {
    const std::lock_guard lock(mutex);
    const auto miss = misses.find(key);
    if (miss != misses.end() && Clock::now() < miss->second + kMissedFor) return -1;
  }
  const int found = find_by_debuginfod(kind, {build_id, length});
  if (found >= 0) return found;
  const std::lock_guard lock(mutex);
  if (misses.size() >= kMostMisses) misses.clear();
  misses[key] = Clock::now();
  return -1;
}

}  // namespace
}  // namespace windlass::symbols

// libdw's own names, which its archive then has no need to give (debuginfod-client.o).
// NOLINTBEGIN(bugprone-reserved-identifier): they are libdw's
extern "C" {

int __libdwfl_debuginfod_find_debuginfo(Dwfl* /*dwfl*/, const unsigned char* build_id, std::size_t length) {
  return windlass::symbols::find_again("debuginfo", build_id, length);
}

int __libdwfl_debuginfod_find_executable(Dwfl* /*dwfl*/, const unsigned char* build_id, std::size_t length) {
  return windlass::symbols::find_again("executable", build_id, length);
}

void __libdwfl_debuginfod_end(debuginfod_client* /*client*/) {}

debuginfod_client* dwfl_get_debuginfod_client(Dwfl* /*dwfl*/) { return nullptr; }

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
