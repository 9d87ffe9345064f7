// Samples whose registers may be of two states. Functions of the kernel write a thread's registers one after the other
// (os::RegisterWriters), and a recording reads the names of these functions while it samples already. Who waited for
// the names would hear nothing of processes meanwhile. So samples of the kernel wait, walked already.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "os/register_writers.h"
#include "profiler/processes/process_table.h"
#include "profiler/samples/aggregator.h"
#include "windlass_event_layout.h"

namespace windlass::profiler {

// One thread only. Bounds: kMostWaiting samples, if its user keeps to is_full().
class UnjudgedSamples {
 public:
  static constexpr std::size_t kMostWaiting = std::size_t{1} << 16;

  // Without writers all registers are of one state.
  void set_writers(std::shared_future<os::RegisterWriters> writers) { writers_ = std::move(writers); }

  // Can a sample with these kernel frames be judged without waiting?
  [[nodiscard]] bool can_judge(std::span<const std::uint64_t> kernel) const {
    return kernel.empty() || can_judge_all();
  }
  [[nodiscard]] bool can_judge_all() const {
    return !writers_.valid() || writers_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  // Are the thread's registers of two states? Nothing but the program counter is of use then. Waits for the writers.
  [[nodiscard]] bool is_half_written(std::span<const std::uint64_t> kernel) const {
    return writers_.valid() && !kernel.empty() && writers_.get().were_writing(kernel);
  }

  // A sample as Aggregator::add wants it, or add_counted if there is a key. Its parts are copied.
  void push(const wl_event_head& head, const StackRecord& stack, std::shared_ptr<const MapSet> maps,
            std::optional<wl_stack_key> key);
  [[nodiscard]] bool is_full() const { return waiting_.size() >= kMostWaiting; }
  // Takes all out, in their order.
  using Use = std::function<void(const wl_event_head& head, const StackRecord& stack, const MapSet* maps,
                                 std::optional<wl_stack_key> key)>;
  void take(const Use& use);
  void for_each_maps(const std::function<void(const MapSet& maps)>& use) const;

 private:
  struct Waiting {
    wl_event_head head{};
    StackRecord stack;  // its parts are those below
    std::vector<std::uint64_t> kernel, user;
    std::vector<std::uint32_t> names;
    std::shared_ptr<const MapSet> maps;  // of its time
    std::optional<wl_stack_key> key;
  };

  std::shared_future<os::RegisterWriters> writers_;
  std::vector<Waiting> waiting_;
};

// The innermost frame alone, of a stack of such registers.
void cut_to_innermost(StackRecord& stack);

}  // namespace windlass::profiler
