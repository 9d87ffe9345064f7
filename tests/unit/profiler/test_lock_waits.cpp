// Which waits are for a lock, and what of their wakers is left, by the names of functions.
#include "profiler/samples/lock_waits.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "profiler/samples/waker_frames.h"
#include "windlass_ends.h"

namespace windlass::profiler {
namespace {

using Stack = std::vector<std::string>;  // names, innermost first; those of the kernel begin with "k:"

class LockWaits : public testing::Test {
 protected:
  LockWaits() {
    profile.modules = {{.path = "[kernel]", .is_kernel = true}, {.path = "libc.so.6"}, {.path = kWakerModule}};
    profile.strings = {"reason", "futex", "preempted", "openat"};
    profile.label_sets = {{}, {{0, 1}}, {{0, 2}}, {{0, 3}}};
    profile.events = {{.name = "off-cpu", .counted = "waits"}, {.name = "lock", .counted = "contentions"}};
  }

  void add(const Stack& names, std::uint32_t labels, std::uint32_t event = 0) {
    profile::Sample& sample = profile.samples.emplace_back();
    sample.event = event;
    sample.count = 1;
    sample.labels = labels;
    for (std::string name : names) {
      std::uint32_t module = name.starts_with("[") ? 2 : 1;
      if (name.starts_with("k:")) {
        name.erase(0, 2);
        module = 0;
      }
      sample.locations.push_back(static_cast<std::uint32_t>(profile.locations.size()));
      profile.locations.push_back(
          {.module = module, .lines = {{.function = static_cast<std::uint32_t>(profile.functions.size())}}});
      profile.functions.push_back({.name = name});
    }
  }

  std::vector<Stack> stacks(std::uint32_t event) const {
    std::vector<Stack> stacks;
    for (const profile::Sample& sample : profile.samples) {
      if (sample.event != event) continue;
      Stack& stack = stacks.emplace_back();
      for (const std::uint32_t at : sample.locations)
        stack.push_back(profile.functions[profile.locations[at].lines.front().function].name);
    }
    return stacks;
  }

  // Is a wait with this reason for a lock?
  bool is_lock(const Stack& stack, std::uint32_t labels = kFutex) {
    profile.samples.clear();
    add(stack, labels);
    take_locks(profile, both);
    return !stacks(1).empty();
  }

  static constexpr std::uint32_t kFutex = 1, kPreempted = 2, kOpenat = 3;
  profile::Profile profile;
  const std::vector<EventSpec> both{*parse_event("off-cpu"), *parse_event("lock")};
};

TEST_F(LockWaits, AreThoseOfFunctionsThatLock) {
  for (const char* lock :
       {"__pthread_mutex_lock", "___pthread_mutex_lock", "pthread_rwlock_rdlock", "__lll_lock_wait",
        "__GI___lll_lock_wait_private", "pthread_mutex_timedlock", "mtx_lock",
        "std::sys::sync::mutex::futex::Mutex::lock_contended", "runtime.lock2",
        "<std::sys::sync::mutex::futex::Mutex>::lock_contended", "parking_lot::raw_mutex::RawMutex::lock_slow",
        "ObjectMonitor::enter(JavaThread*)", "java.util.concurrent.locks.ReentrantLock.lock"})
    EXPECT_TRUE(is_lock({"k:futex_wait", "syscall", lock, "main"})) << lock;
  for (const char* other :
       {"pthread_cond_wait", "sem_wait", "pthread_barrier_wait", "pthread_join", "runtime.notesleep",
        "std::sys::sync::condvar::futex::Condvar::wait", "com.example.MyReentrantLock.lock",
        "java.util.concurrent.Semaphore.acquire", "pthread_mutex_unlock", "lock"})
    EXPECT_FALSE(is_lock({"k:futex_wait", "syscall", other, "main"})) << other;
}

// The time that a thread waits for a CPU within such a function is no wait for the lock.
TEST_F(LockWaits, AreWaitsForAFutexOrInTheKernel) {
  EXPECT_FALSE(is_lock({"k:futex_wait", "pthread_mutex_lock"}, kPreempted));
  EXPECT_FALSE(is_lock({"k:do_openat", "pthread_mutex_lock"}, kOpenat)) << "a lock function that opens a file";
  EXPECT_TRUE(is_lock({"k:schedule_preempt_disabled", "k:__mutex_lock.constprop.0", "k:do_openat", "open"}, kOpenat));
  EXPECT_TRUE(is_lock({"k:rwsem_down_read_slowpath", "k:down_read", "k:do_user_addr_fault", "main"}, kOpenat));
  EXPECT_FALSE(is_lock({"k:__mutex_lock", "open"}, kPreempted));
  EXPECT_FALSE(is_lock({"k:folio_wait_bit", "open"}, kOpenat));
  EXPECT_FALSE(is_lock({"k:pthread_mutex_lock", "open"}, kFutex)) << "no function of the kernel's";
}

TEST_F(LockWaits, OthersGoIfOnlyLocksAreRecorded) {
  profile.events.erase(profile.events.begin());
  const std::vector<EventSpec> only{*parse_event("lock")};
  add({"pthread_mutex_lock", "a"}, kFutex);
  add({"pthread_cond_wait", "b"}, kFutex);
  take_locks(profile, only);
  EXPECT_EQ(stacks(0), (std::vector<Stack>{{"pthread_mutex_lock", "a"}}));
}

// Nothing says what such a thread waits for. Left out, it would be missing without a word.
TEST_F(LockWaits, AWaitWithoutAStackMayBeForALock) {
  add({}, kFutex);
  add({"k:futex_wait"}, kFutex);
  add({"k:wake_up_q", "unlock", "[woken by b]", "k:futex_wait"}, kFutex);
  add({"k:futex_wait", "pthread_cond_wait"}, kFutex);
  add({}, kOpenat);
  for (profile::Sample& sample : profile.samples) sample.end = WL_END_NO_TIME;
  add({"k:a_thread_of_the_kernel"}, kFutex);
  profile.samples.back().end = WL_END_KERNEL_ONLY;
  take_locks(profile, both);
  EXPECT_EQ(stacks(1), (std::vector<Stack>{{}, {"futex_wait"}, {"futex_wait"}}));
  EXPECT_EQ(stacks(0).size(), 6u);
}

TEST_F(LockWaits, WakersStayWhereTheyAreWanted) {
  const Stack stack{"pthread_mutex_unlock", "other", "[woken by b]", "pthread_mutex_lock", "main"};
  const Stack bare{"pthread_mutex_lock", "main"},
      held{"pthread_mutex_unlock", "other", "[held by b]", "pthread_mutex_lock", "main"};
  const Stack condition{"pthread_mutex_lock", "[woken by b]", "pthread_cond_wait", "main"};
  for (const bool wakers : {false, true}) {
    for (const bool holders : {false, true}) {
      profile.samples.clear();
      add(stack, kFutex);
      add(condition, kFutex);
      std::vector<EventSpec> events = both;
      events[0].wakers = wakers;
      events[1].wakers = holders;
      take_locks(profile, events);
      EXPECT_EQ(stacks(0),
                (std::vector<Stack>{wakers ? stack : bare, wakers ? condition : Stack{"pthread_cond_wait", "main"}}));
      EXPECT_EQ(stacks(1), std::vector<Stack>{holders ? held : bare});
    }
  }
}

TEST_F(LockWaits, AnInterruptHoldsNoLock) {
  const Stack stack{"k:hrtimer_wakeup", "[woken by an interrupt]", "pthread_mutex_timedlock"};
  add(stack, kFutex);
  std::vector<EventSpec> events = both;
  events[1].wakers = true;
  take_locks(profile, events);
  EXPECT_EQ(stacks(1).at(0).at(1), "[woken by an interrupt]");
}

// Up to the function that wakes, the kernel's frames are the same in all.
TEST_F(LockWaits, WhatAnInterruptInterruptsWakesNobody) {
  add({"k:bpf_trace", "k:try_to_wake_up", "k:wake_up_q", "k:futex_wake", "unlock", "main", "[woken by b]", "wait"}, 1);
  add({"k:try_to_wake_up", "k:hrtimer_wakeup", "k:sysvec_apic_timer_interrupt", "k:asm_sysvec_apic_timer_interrupt",
       "k:clear_page", "spin", "main", "[woken by b]", "k:do_nanosleep", "try_to_wake_up"},
      1);
  add({"k:try_to_wake_up", "wait"}, 1);
  leave_out_waking(profile);
  EXPECT_EQ(stacks(0),
            (std::vector<Stack>{{"wake_up_q", "futex_wake", "unlock", "main", "[woken by b]", "wait"},
                                {"hrtimer_wakeup", "sysvec_apic_timer_interrupt", "asm_sysvec_apic_timer_interrupt",
                                 "[woken by an interrupt]", "do_nanosleep", "try_to_wake_up"},
                                {"try_to_wake_up", "wait"}}));
}

}  // namespace
}  // namespace windlass::profiler
