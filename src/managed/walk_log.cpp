#include <atomic>

#include "managed/walk_state.h"

namespace windlass::managed {

constinit std::atomic<WalkLog> the_log = nullptr;

namespace {

std::atomic<void*> the_user = nullptr;

}  // namespace

void set_walk_log(WalkLog log, void* user) {
  the_log.store(nullptr, std::memory_order_release);
  the_user.store(user, std::memory_order_release);
  the_log.store(log, std::memory_order_release);
}

void write_log(std::string_view line) {
  if (const WalkLog log = the_log.load(std::memory_order_acquire); log != nullptr)
    log(line, the_user.load(std::memory_order_acquire));
}

}  // namespace windlass::managed
