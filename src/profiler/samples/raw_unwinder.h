// Unwinds a sample that the kernel side handed over raw: the library's StackWalker, over the sample's registers and
// copies of memory. Here is only what is about samples: which process and which memory it is, and how its end is
// called.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/pointer_authentication.h"
#include "profiler/processes/module_registry.h"
#include "profiler/processes/process_table.h"
#include "profiler/profile/walk_end.h"
#include "profiler/samples/raw_event.h"
#include "profiler/samples/sampled_process.h"
#include "profiler/samples/snapshot_memory.h"
#include "profiler/samples/work_budget.h"
#include "walk/code_memo.h"
#include "windlass_ends.h"
#include "windlass_event_layout.h"
#include "windlass_learned_layout.h"

namespace windlass::profiler {

// A step from code without rows that the kernel side can repeat (walk/steady_step.h).
struct CheckedStep {
  std::uint64_t frame = 0;   // as wl_stack_event has it
  std::uint64_t caller = 0;  // wl_caller_word()
  wl_steady step{};
  std::shared_ptr<const flow::WholeFunction> function = nullptr;  // as walk::SteadyStep has it, and compared
  std::uint64_t function_bias = 0;
};

struct UnwoundStack {
  std::uint8_t end = WL_END_INTERNAL;
  std::uint8_t certainty = WL_DESCRIBED;  // of the least certain frame
  std::vector<std::uint64_t> frames;      // of the user, innermost first, as wl_stack_event has them
  std::vector<std::uint64_t> functions;   // Frame::function of the first frames; of the others 0
  std::vector<CheckedStep> checked;
};

class RawUnwinder : private walk::CodeMemo::Listener {
 public:
  static constexpr std::size_t kMaxFrames = WL_MAX_USER_FRAMES;

  // code_mask: what return addresses are ANDed with.
  explicit RawUnwinder(ModuleRegistry& registry, std::uint64_t code_mask = user_code_mask())
      : registry_(registry), code_mask_(code_mask) {
    memo_.set_listener(*this);
  }
  RawUnwinder(const RawUnwinder&) = delete;
  RawUnwinder& operator=(const RawUnwinder&) = delete;

  // Stacks are walked within it, which must outlive this. Without one there is no bound.
  void set_budget(WorkBudget& budget);

  // `maps`: the process's as of the sample; null: not known.
  [[nodiscard]] UnwoundStack unwind(const RawSample& sample, const MapSet* maps);

  // Of a stack that the kernel side calls whole: does its outermost frame prove that? The kernel side does not know
  // where functions begin.
  [[nodiscard]] bool proves_end(std::uint64_t frame, const MapSet& maps);

  // What a sample is walked in. Valid, and the sample's memory, until the next call.
  [[nodiscard]] const AddressSpace& space_of(const RawSample& sample, const MapSet& maps);

  // Drops the modules of processes for which known(tgid) is false.
  void keep_only(const std::function<bool(std::uint32_t tgid)>& known);

  // What the code of its processes came to.
  [[nodiscard]] const walk::CodeMemo& memo() const { return memo_; }

 private:
  static constexpr std::size_t kMaxProcesses = 256;
  static constexpr std::size_t kMaxEnds = 4096;

  std::uint8_t walk(const RawSample& sample, const MapSet& maps, UnwoundStack& to);
  void take(const walk::SteadyStep& step) override;
  [[nodiscard]] bool has_code_of(const walk::SteadyStep& step) const;

  ModuleRegistry& registry_;
  std::uint64_t code_mask_;
  WorkBudget* budget_ = nullptr;
  SnapshotMemory memory_;
  walk::CodeMemo memo_;
  std::vector<CheckedStep>* checked_ = nullptr;                   // of the stack that is being unwound
  std::unordered_map<std::uint32_t, SampledProcess> processes_;   // by tgid
  std::uint64_t evictions_ = 0;                                   // of the registry, when they were made
  std::map<std::pair<std::uint32_t, std::uint64_t>, bool> ends_;  // what proves_end() found, by module and frame in it
};

// What a sample's stack ended with, as the kernel side and profiles call it.
[[nodiscard]] inline std::uint8_t sample_end(WalkEnd end, const Error& why) { return profile::end_of_walk(end, why); }

}  // namespace windlass::profiler
