#include "walk/target/thread_stacks.h"

#include <map>
#include <utility>

#include "walk/inside.h"
#include "walk/interpreted.h"
#include "windlass/backtrace.h"

namespace windlass::walk {
namespace {

class Collector {
 public:
  Collector(const Target& target, ThreadStacks& walked) : target_(target), walked_(walked) {}

  void walk(const Thread& thread, std::size_t max_frames) {
    ThreadStack& to = walked_.threads.emplace_back();
    to.thread = &thread;
    if (thread.kernel_only) {
      to.end = WalkEnd::kComplete;
      return;
    }
    if (thread.registers.pc().value() == 0 && !thread.registers.has_sp()) {
      to.end = WalkEnd::kLost;
      to.error = Error{ErrorCode::kNotFound, "registers of the thread are not known", thread.id};
      return;
    }
    StackWalker walker(target_.space, thread.registers, {.max_frames = max_frames});
    pcs_.clear();
    functions_.clear();
    do {
      const Frame& frame = walker.frame();
      to.frames.push_back({frame.registers, frame.origin, frame.signal_frame, frame.certainty, 0});
      pcs_.push_back(frame.pc());
      functions_.push_back(frame.function);
    } while (walker.step());
    to.end = walker.end_reason();
    to.error = walker.error();
    const std::vector<std::uint64_t> interpreted = interpreted_functions(target_, thread, pcs_, to.end);
    for (std::size_t i = 0; i < to.frames.size(); ++i) {
      if (i < interpreted.size() && interpreted[i] != 0) functions_[i] = interpreted[i];
      to.frames[i].address = index_of(pcs_[i], functions_[i]);
    }
  }

 private:
  std::uint32_t index_of(CodeAddress pc, std::uint64_t function) {
    const auto [entry, is_new] =
        indexes_.try_emplace({pc.lookup(), function}, static_cast<std::uint32_t>(walked_.addresses.size()));
    if (is_new) walked_.addresses.push_back(pc), walked_.functions.push_back(function);
    return entry->second;
  }

  const Target& target_;
  ThreadStacks& walked_;
  std::vector<CodeAddress> pcs_;  // of the stack at hand
  std::vector<std::uint64_t> functions_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> indexes_;  // by what is looked up
};

}  // namespace

ThreadStacks walk_all(const Target& target, std::size_t max_frames) {
  ThreadStacks walked;
  Collector collector(target, walked);
  for (const Thread& thread : target.threads) collector.walk(thread, max_frames);
  if (const auto& interpreted = Inside::interpreted(target); interpreted != nullptr)
    walked.problems = interpreted->problems();
  return walked;
}

// The frame whose stack pointer is the CFA of the function that was asked.
Registers caller_of(const void* cfa) {
  StackWalker walker(own_process(), capture_registers());
  while (walker.frame().sp() < reinterpret_cast<std::uint64_t>(cfa) && walker.step()) continue;
  return walker.frame().registers;
}

}  // namespace windlass::walk
