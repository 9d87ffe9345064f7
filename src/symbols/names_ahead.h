// Names the addresses of a recording while it goes on. When it ends, those that came last are left.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "profiler/profile/profile.h"
#include "symbols/live_names.h"
#include "symbols/symbolize.h"

namespace windlass::symbols {

// Names on a thread of its own, which takes at most a kTimesCost-th of a CPU. At most kMostOpen files are open at a
// time: some take 10 MB.
//
// Its functions are called by one thread.
class NamesAhead {
 public:
  static constexpr int kTimesCost = 4;
  static constexpr std::size_t kMostOpen = 16;
  static constexpr std::uint64_t kIdle = 20;  // calls of add() with addresses
  // As symbolize() is to have them.
  explicit NamesAhead(SymbolizeOptions options);
  ~NamesAhead() { stop(); }
  NamesAhead(const NamesAhead&) = delete;
  NamesAhead& operator=(const NamesAhead&) = delete;

  // Addresses in files: of the Profile, its modules and locations count.
  void add(profile::Profile&& code);
  // What is known of a module's file; null: nothing is. Stops naming: waits for at most LiveNames::kAtOnce addresses.
  [[nodiscard]] std::unique_ptr<LiveNames::KnownFile> take(const profile::Module& module);
  // Waits until all is named that was given. For tests.
  void wait();

 private:
  void run();
  void stop();

  LiveNames names_;  // by `thread_`, until it has ended
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<profile::Profile> given_;
  bool busy_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace windlass::symbols
