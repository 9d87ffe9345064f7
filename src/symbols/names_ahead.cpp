#include "symbols/names_ahead.h"

#include <chrono>
#include <utility>

#include "base/monotonic.h"
#include "os/priority.h"

namespace windlass::symbols {

NamesAhead::NamesAhead(SymbolizeOptions options) : names_(std::move(options), kIdle), thread_([this] { run(); }) {}

void NamesAhead::add(profile::Profile&& code) {
  if (code.locations.empty()) return;
  const std::scoped_lock guard(mutex_);
  given_.push_back(std::move(code));
  changed_.notify_all();
}

void NamesAhead::run() {
  os::restore_priority();
  names_.keep_open(kMostOpen);
  std::unique_lock guard(mutex_);
  for (;;) {
    changed_.wait(guard, [this] { return stopped_ || !given_.empty(); });
    if (stopped_) return;
    const profile::Profile code = std::move(given_.front());
    given_.pop_front();
    busy_ = true;
    guard.unlock();
    const std::uint64_t before = thread_time_ns();
    names_.learn(code, stopped_);
    const std::chrono::nanoseconds cost(thread_time_ns() - before);
    guard.lock();
    busy_ = false;
    changed_.notify_all();
    changed_.wait_for(guard, cost * (kTimesCost - 1), [this] { return stopped_.load(); });
  }
}

void NamesAhead::wait() {
  std::unique_lock guard(mutex_);
  changed_.wait(guard, [this] { return given_.empty() && !busy_; });
}

void NamesAhead::stop() {
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock guard(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

std::unique_ptr<LiveNames::KnownFile> NamesAhead::take(const profile::Module& module) {
  stop();
  return names_.take(module);
}

}  // namespace windlass::symbols
