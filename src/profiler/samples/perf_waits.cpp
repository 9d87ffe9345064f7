#include "profiler/samples/perf_waits.h"

#include <linux/perf_event.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/monotonic.h"
#include "base/registers.h"
#include "windlass/bytes.h"

namespace windlass::profiler {
namespace {

// The kernel enters each system call of x86 with -ENOSYS in the saved rax (arch/x86/entry/entry_64.S). The number of
// the call is in none of the registers that perf events give.
bool is_in_system_call(const wl_raw_event& event) {
  if (event.machine == WL_MACHINE_AARCH64) return true;  // nothing there tells
  return static_cast<std::int32_t>(event.regs[x86_64::kRax]) == -ENOSYS;
}

// The thread's time adds up without its frames, too.
PerfWaits::Event without_frames(std::uint16_t number, std::uint32_t tgid, std::uint32_t tid, std::uint64_t time) {
  PerfWaits::Event event(sizeof(wl_stack_event) / 8);
  auto& stack = *reinterpret_cast<wl_stack_event*>(event.data());
  stack.head.type = WL_EVENT_STACK;
  stack.head.event = number;
  stack.head.time = time;
  stack.head.tgid = tgid;
  stack.head.tid = tid;
  stack.end = WL_END_UNREADABLE_STACK;
  return event;
}

// Of a thread that has ended, the kernel no longer knows the ids (perf_event_pid() in kernel/events/core.c).
bool is_thread_id(std::uint32_t id) { return id != 0 && id != ~std::uint32_t{0}; }

}  // namespace

void PerfWaits::hold(Event&& event) {
  const std::uint32_t tid = reinterpret_cast<const wl_event_head*>(event.data())->tid;
  held_[tid] = std::move(event);
}

// struct { header; u32 pid, tid; u64 time; u64 id; }
std::optional<PerfWaits::Event> PerfWaits::on_switch(std::span<const std::byte> record, bool& known) {
  const ByteView view(record.data(), record.size());
  const auto header = view.at<perf_event_header>(0);
  const auto tgid = view.at<std::uint32_t>(8);
  const auto tid = view.at<std::uint32_t>(12);
  const auto time = view.at<std::uint64_t>(16);
  known = header && tgid && tid && time;
  if (!known) return std::nullopt;
  if ((header->misc & PERF_RECORD_MISC_SWITCH_OUT) == 0) {
    switches_.push_back({.time = *time, .tid = *tid, .begin = {}});
    return std::nullopt;
  }
  auto held = held_.extract(*tid);
  if (held.empty() && !(is_thread_id(*tgid) && is_thread_id(*tid))) return std::nullopt;
  Event event = held.empty() ? without_frames(event_, *tgid, *tid, *time) : std::move(held.mapped());
  begin_wait(event, *time, (header->misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT) != 0);
  return event;
}

void PerfWaits::begin_wait(Event& event, std::uint64_t time, bool preempted) {
  auto& head = *reinterpret_cast<wl_event_head*>(event.data());
  const std::uint64_t hash = ++waits_;
  head.reason = preempted ? WL_WAIT_PREEMPTED : WL_WAIT_OTHER;
  if (head.type == WL_EVENT_RAW) {
    auto& raw = reinterpret_cast<wl_raw_event&>(head);
    raw.hash = hash;
    if (!preempted && !is_in_system_call(raw)) head.reason = WL_WAIT_FAULT;
  } else {
    auto& stack = reinterpret_cast<wl_stack_event&>(head);
    stack.hash = hash;
    if (!preempted && stack.user_frames == 0) head.reason = 0;  // nothing tells
  }
  switches_.push_back({.time = time, .tid = head.tid, .begin = Begin{{hash, head.tgid, head.tid}, head.event, time}});
}

void PerfWaits::settle(std::uint64_t time, const std::function<void(const Ended& wait)>& use) {
  std::ranges::stable_sort(switches_, {}, &Switch::time);
  const auto end = std::ranges::lower_bound(switches_, time, {}, &Switch::time);
  for (auto next = switches_.begin(); next != end; ++next) {
    auto wait = waiting_.extract(next->tid);
    if (next->begin) {
      waiting_.emplace(next->tid, *next->begin);
    } else if (!wait.empty()) {
      const Begin& begin = wait.mapped();
      const std::uint64_t lasted = next->time - begin.since;
      if (lasted < shortest_) continue;
      counts_.push_back({begin.key, {.count = 1, .value = lasted, .told = 1}});
      use({begin.key, begin.event, begin.since, lasted});
    }
  }
  switches_.erase(switches_.begin(), end);
}

// 0: too short to be counted.
std::uint64_t PerfWaits::lasted(const Begin& wait) const {
  const std::uint64_t now = stopped_ != 0 ? stopped_ : monotonic_ns();
  const std::uint64_t time = now - std::min(wait.since, now);
  return time < shortest_ ? 0 : time;
}

void PerfWaits::for_each_count(const SampleSource::CountHandler& handler, bool clear) {
  for (const Counted& one : counts_) handler(one.key, one.count);
  if (clear) counts_.clear();
}

void PerfWaits::for_each_waiting(const SampleSource::WaitingHandler& handler) const {
  for (const auto& [tid, wait] : waiting_) handler({.key = wait.key, .since = wait.since, .lasted = lasted(wait)});
}

}  // namespace windlass::profiler
