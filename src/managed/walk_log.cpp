#include <atomic>
#include <cstdarg>
#include <cstdio>

#include "managed/walk_state.h"

namespace windlass::managed {
namespace {

std::atomic<WalkLog> the_log = nullptr;
std::atomic<void*> the_user = nullptr;

}  // namespace

void set_walk_log(WalkLog log, void* user) {
  the_log.store(nullptr, std::memory_order_release);
  the_user.store(user, std::memory_order_release);
  the_log.store(log, std::memory_order_release);
}

bool walk_is_logged() { return the_log.load(std::memory_order_relaxed) != nullptr; }

void log_walk(const char* format, ...) {
  const WalkLog log = the_log.load(std::memory_order_acquire);
  if (log == nullptr) return;
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  const int size = std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (size > 0)
    log({line, std::min(static_cast<std::size_t>(size), sizeof line - 1)}, the_user.load(std::memory_order_acquire));
}

}  // namespace windlass::managed
