// Threads that wait when the recording begins, and so have left their CPU unseen. The kernel side sends their
// registers; here their stacks are read while they still wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "profiler/kernel/sample_source.h"
#include "windlass_event_layout.h"

namespace windlass::profiler {

// One thread only.
class RestingThreads {
 public:
  // Bytes that are read of the stack, and of a second one. The latter is the stack of a Windows program
  // under Wine, below whose system call the thread waits, or a goroutine's.
  static constexpr std::size_t kStackBytes = std::size_t{128} << 10, kSecondBytes = std::size_t{64} << 10;

  // Reads the stack of the thread that the event is about; false for other events.
  bool take(const wl_event_head& head, std::size_t size);

  // Hands out the events with their stacks. A thread that does not wait any more may have changed its stack while that
  // was read, so its event comes without.
  using Waiting = std::function<void(const SampleSource::WaitingHandler&)>;
  void hand_out(const Waiting& waiting, const SampleSource::Handler& use);

 private:
  struct Event {
    std::vector<std::uint64_t> words;  // a wl_raw_event and what follows it
    std::size_t size = 0;
  };
  std::vector<Event> events_;
  std::vector<std::uint64_t> room_;  // for the event at hand
};

}  // namespace windlass::profiler
