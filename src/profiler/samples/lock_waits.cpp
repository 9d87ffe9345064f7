#include "profiler/samples/lock_waits.h"

#include <sys/syscall.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <ranges>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "profiler/samples/wait_reasons.h"
#include "profiler/samples/waker_frames.h"
#include "windlass_event_layout.h"

namespace windlass::profiler {
namespace {

using std::string_view;

// Between the system call and the function that waits there are a few frames at most.
constexpr std::ptrdiff_t kMostFramesOfWait = 24;

// The kernel's mutexes and semaphores for readers and writers (kernel/locking), and the lock of a socket.
constexpr string_view kKernelLocks[] = {
    "__mutex_lock",       "__ww_mutex_lock",   "rwsem_down_read_slowpath", "rwsem_down_write_slowpath",
    "__percpu_down_read", "percpu_down_write", "rt_mutex_slowlock",        "__rt_mutex_slowlock",
    "futex_lock_pi",      "__lock_sock"};

// Of the C libraries, without underscores in front. The lll_ are glibc's, and all others of glibc and musl.
constexpr string_view kLibraryLocks[] = {"lll_lock_wait",
                                         "lll_lock_wait_private",
                                         "pthread_mutex_lock",
                                         "pthread_mutex_lock_full",
                                         "pthread_mutex_cond_lock",
                                         "pthread_mutex_cond_lock_full",
                                         "pthread_mutex_timedlock",
                                         "pthread_mutex_clocklock",
                                         "pthread_mutex_clocklock_common",
                                         "pthread_rwlock_rdlock",
                                         "pthread_rwlock_rdlock_full64",
                                         "pthread_rwlock_wrlock",
                                         "pthread_rwlock_wrlock_full64",
                                         "pthread_rwlock_timedrdlock",
                                         "pthread_rwlock_timedwrlock",
                                         "pthread_rwlock_clockrdlock",
                                         "pthread_rwlock_clockwrlock",
                                         "mtx_lock",
                                         "mtx_timedlock",
                                         "lockfile"};

// Ends of names: Rust's standard library and parking_lot, Go's runtime, HotSpot and java.util.concurrent.
constexpr string_view kRuntimeLocks[] = {"Mutex::lock_contended",
                                         "RwLock::read_contended",
                                         "RwLock::write_contended",
                                         "RawMutex::lock_slow",
                                         "RawRwLock::lock_shared_slow",
                                         "RawRwLock::lock_exclusive_slow",
                                         "runtime.lock2",
                                         "ObjectMonitor::enter",
                                         "ReentrantLock.lock",
                                         "ReentrantReadWriteLock$ReadLock.lock",
                                         "ReentrantReadWriteLock$WriteLock.lock",
                                         "StampedLock.readLock",
                                         "StampedLock.writeLock"};

// Of a C++ function without parameters; a compiler adds ".constprop.0", ".isra.0" and others.
string_view plain(string_view name, bool is_kernel) {
  name = name.substr(0, name.find('('));
  return is_kernel ? name.substr(0, name.find('.')) : name;
}

bool is_kernel_lock(string_view name) { return std::ranges::find(kKernelLocks, name) != std::end(kKernelLocks); }

bool is_lock_function(string_view full_name) {
  std::string text(full_name);
  std::erase_if(text, [](char c) { return c == '<' || c == '>'; });  // Rust's "<a::Mutex>::lock_contended"
  string_view name = text;
  for (const string_view end : kRuntimeLocks) {
    if (!name.ends_with(end)) continue;
    const std::size_t begin = name.size() - end.size();
    if (begin == 0 || std::isalnum(static_cast<unsigned char>(name[begin - 1])) == 0) return true;
  }
  name.remove_prefix(std::min(name.find_first_not_of('_'), name.size()));
  if (name.starts_with("GI_")) {  // how glibc calls its functions itself
    name.remove_prefix(3);
    name.remove_prefix(std::min(name.find_first_not_of('_'), name.size()));
  }
  return std::ranges::find(kLibraryLocks, name) != std::end(kLibraryLocks);
}

enum class LockPart : std::uint8_t { kNone, kKernelLock, kLock };

LockPart lock_part_of(const profile::Profile& profile, const profile::Location& location) {
  const bool is_kernel = location.module < profile.modules.size() && profile.modules[location.module].is_kernel;
  const bool is_lock = std::ranges::any_of(location.lines, [&](const profile::Line& line) {
    const string_view name = plain(profile.functions[line.function].name, is_kernel);
    return is_kernel ? is_kernel_lock(name) : is_lock_function(name);
  });
  return !is_lock ? LockPart::kNone : is_kernel ? LockPart::kKernelLock : LockPart::kLock;
}

// By label set: the reasons of its samples' waits.
class WaitReasons {
 public:
  explicit WaitReasons(const profile::Profile& profile) {
    for (const auto& labels : profile.label_sets) {
      Reason& reason = reasons_.emplace_back(Reason::kOther);
      for (const profile::Label& label : labels) {
        if (profile.strings[label.key] != kWaitReasonLabel) continue;
        const std::string& text = profile.strings[label.value];
        if (text == wait_reason(WL_WAIT_SYSCALL + SYS_futex)) reason = Reason::kFutex;
        if (text == wait_reason(WL_WAIT_PREEMPTED)) reason = Reason::kPreempted;
      }
    }
  }
  // Can this part of a stack be what a sample waits for?
  [[nodiscard]] bool fits(const profile::Sample& sample, LockPart part) const {
    const Reason reason = reasons_[sample.labels];
    return part == LockPart::kKernelLock ? reason != Reason::kPreempted
                                         : part == LockPart::kLock && reason == Reason::kFutex;
  }

 private:
  enum class Reason : std::uint8_t { kOther, kFutex, kPreempted };
  std::vector<Reason> reasons_;
};

// Names the frame between a holder and those that wait for the lock.
class HolderFrames {
 public:
  explicit HolderFrames(profile::Profile& profile) : profile_(profile) {}

  // In place of one that says "[woken by NAME]".
  std::uint32_t of(std::uint32_t waker) {
    const auto [known, is_new] = known_.try_emplace(waker, waker);
    const std::string text = profile_.functions[profile_.locations[waker].lines.front().function].name;
    if (is_new && text.find(kAnInterrupt, kWokenBy.size()) != kWokenBy.size())
      known->second =
          add_waker_frame(profile_, fmt::format("{}{}", kHeldBy, string_view(text).substr(kWokenBy.size())));
    return known->second;
  }

 private:
  profile::Profile& profile_;
  std::unordered_map<std::uint32_t, std::uint32_t> known_;
};

// Did the stack break off in front of every function of the process, so that none of them tells what it waits for?
bool is_untold(const profile::Profile& profile, const profile::Sample& sample, std::size_t first) {
  if (profile::is_whole(sample.end)) return false;
  return std::ranges::all_of(sample.locations | std::views::drop(first), [&](std::uint32_t at) {
    const std::uint32_t module = profile.locations[at].module;
    return module < profile.modules.size() && profile.modules[module].is_kernel;
  });
}

const EventSpec* find_event(std::span<const EventSpec> events, EventKind kind) {
  const auto found = std::ranges::find(events, kind, &EventSpec::kind);
  return found != events.end() ? &*found : nullptr;
}

}  // namespace

void take_locks(profile::Profile& profile, std::span<const EventSpec> events) {
  const EventSpec *locks = find_event(events, EventKind::kLock), *waits = find_event(events, EventKind::kWait);
  if (locks == nullptr) return;
  const auto lock_event = static_cast<std::uint32_t>(locks - events.data());
  const std::uint32_t wait_event = waits != nullptr ? static_cast<std::uint32_t>(waits - events.data()) : lock_event;
  std::vector<LockPart> parts;
  for (const profile::Location& location : profile.locations) parts.push_back(lock_part_of(profile, location));
  const WakerFrames wakers(profile);
  const WaitReasons reasons(profile);
  HolderFrames holders(profile);
  std::vector<profile::Sample> of_locks;
  for (profile::Sample& sample : profile.samples) {
    if (sample.event != wait_event) continue;
    const auto waker = static_cast<std::ptrdiff_t>(wakers.count(sample));
    const auto begin = sample.locations.begin() + waker;
    const auto end = begin + std::min<std::ptrdiff_t>(kMostFramesOfWait, sample.locations.end() - begin);
    const bool is_lock = std::any_of(begin, end, [&](std::uint32_t at) { return reasons.fits(sample, parts[at]); });
    if (is_lock ||
        (reasons.fits(sample, LockPart::kLock) && is_untold(profile, sample, static_cast<std::size_t>(waker)))) {
      profile::Sample& lock = of_locks.emplace_back(sample);
      lock.event = lock_event;
      const auto first = lock.locations.begin();
      if (waker != 0 && locks->wakers)
        first[waker - 1] = holders.of(first[waker - 1]);
      else
        lock.locations.erase(first, first + waker);
    }
    if (waits != nullptr && !waits->wakers) sample.locations.erase(sample.locations.begin(), begin);
  }
  if (waits == nullptr)
    std::erase_if(profile.samples, [&](const profile::Sample& sample) { return sample.event == lock_event; });
  std::ranges::move(of_locks, std::back_inserter(profile.samples));
}

}  // namespace windlass::profiler
