// Writes checkpoints of a profile on a thread of its own: compressing a large one takes seconds, in which the rings of
// samples would run over.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "os/priority.h"
#include "profiler/profile/profile.h"

namespace windlass::profiler {

// Times are seconds since the start of the recording.
class CheckpointWriter {
 public:
  using Write = std::function<void(const profile::Profile&, const std::atomic<bool>& given_up)>;
  // `write` may be empty: then nothing is ever wanted. `now` must be callable on any thread.
  CheckpointWriter(Write write, std::function<double()> now) : write_(std::move(write)), now_(std::move(now)) {}
  // Gives up the checkpoint that is being written, and waits for the end of that.
  ~CheckpointWriter() {
    give_up();
    wait();
  }
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // What is being written is not wanted any more. No other may be started.
  void give_up() { given_up_ = true; }

  // Can the next one be started?
  [[nodiscard]] bool is_free() const { return write_ && !thread_.joinable(); }
  // One that took from `begin` on to be made.
  void start(double begin, profile::Profile profile) {
    begin_ = begin;
    end_ = kNone;
    thread_ = std::thread([this, profile = std::move(profile)] {
      os::restore_priority();
      write_(profile, given_up_);
      end_ = now_();
    });
  }
  struct Written {
    double begin, end;
  };
  // Of the one that has been written since the last call.
  [[nodiscard]] std::optional<Written> take_written() {
    if (!thread_.joinable() || end_ == kNone) return std::nullopt;
    wait();
    return Written{begin_, end_};
  }

 private:
  static constexpr double kNone = -1;
  void wait() {
    if (thread_.joinable()) thread_.join();
  }

  Write write_;
  std::function<double()> now_;
  double begin_ = 0;
  std::atomic<double> end_ = kNone;
  std::atomic<bool> given_up_ = false;
  std::thread thread_;
};

}  // namespace windlass::profiler
