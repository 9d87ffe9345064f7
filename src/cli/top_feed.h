// Between the thread that records and the one that shows: seconds one way, wishes the other way.
#pragma once

#include <sys/eventfd.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "os/descriptor.h"
#include "profiler/profile/profile.h"

namespace windlass::cli {

class TopFeed {
 public:
  using WholeProfile = std::function<profile::Profile()>;

  // ---- by the thread that records

  // `whole`: the profile since the start, if it is wanted.
  void add(profile::Profile&& second, const WholeProfile& whole) {
    {
      const std::scoped_lock lock(mutex_);
      seconds_.push_back(std::move(second));
    }
    give(whole);
    (void)eventfd_write(news_.get(), 1);
  }
  // The recording has ended. Returns once nobody looks at it any more.
  void end(const WholeProfile& whole) {
    std::unique_lock lock(mutex_);
    ended_ = true;
    (void)eventfd_write(news_.get(), 1);
    while (!left_) {
      changed_.wait(lock, [this] { return left_ || wanted_; });
      lock.unlock();
      give(whole);
      lock.lock();
    }
  }

  // ---- by the thread that shows

  // Readable once something has come.
  [[nodiscard]] int news() const { return news_.get(); }
  // Readable once the recording is to end.
  [[nodiscard]] int stop() const { return stop_.get(); }
  [[nodiscard]] std::deque<profile::Profile> take() {
    eventfd_t number;
    (void)eventfd_read(news_.get(), &number);
    const std::scoped_lock lock(mutex_);
    return std::exchange(seconds_, {});
  }
  [[nodiscard]] bool ended() {
    const std::scoped_lock lock(mutex_);
    return ended_;
  }
  // It comes with the next news.
  void want_whole() {
    const std::scoped_lock lock(mutex_);
    wanted_ = true;
    changed_.notify_all();
  }
  [[nodiscard]] std::optional<profile::Profile> take_whole() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(whole_, std::nullopt);
  }
  void leave() {
    (void)eventfd_write(stop_.get(), 1);
    const std::scoped_lock lock(mutex_);
    left_ = true;
    changed_.notify_all();
  }

 private:
  void give(const WholeProfile& whole) {
    {
      const std::scoped_lock lock(mutex_);
      if (!std::exchange(wanted_, false)) return;
    }
    profile::Profile made = whole();
    const std::scoped_lock lock(mutex_);
    whole_ = std::move(made);
    (void)eventfd_write(news_.get(), 1);
  }

  os::Descriptor news_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)}, stop_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<profile::Profile> seconds_;
  std::optional<profile::Profile> whole_;
  bool wanted_ = false, ended_ = false, left_ = false;
};

}  // namespace windlass::cli
