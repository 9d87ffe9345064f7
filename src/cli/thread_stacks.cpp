#include "cli/thread_stacks.h"

#include <map>
#include <utility>

namespace windlass::cli {
namespace {

class Collector {
 public:
  Collector(const Target& target, ThreadStacks& walked) : target_(target), walked_(walked) {}

  void walk(const Thread& thread, std::size_t max_frames) {
    ThreadStack& to = walked_.threads.emplace_back();
    to.thread = &thread;
    if (thread.registers.pc().value() == 0 && !thread.registers.has_sp()) {
      to.end = WalkEnd::kLost;
      to.error = Error{ErrorCode::kNotFound, "registers of the thread are not known", thread.id};
      return;
    }
    StackWalker walker(target_.space, thread.registers, {.max_frames = max_frames});
    do {
      const Frame& frame = walker.frame();
      to.frames.push_back({frame.registers, frame.origin, frame.signal_frame, frame.certainty, index_of(frame)});
    } while (walker.step());
    to.end = walker.end_reason();
    to.error = walker.error();
  }

 private:
  std::uint32_t index_of(const Frame& frame) {
    const auto [entry, is_new] = indexes_.try_emplace({frame.pc().lookup(), frame.function},
                                                      static_cast<std::uint32_t>(walked_.addresses.size()));
    if (is_new) walked_.addresses.push_back(frame.pc()), walked_.functions.push_back(frame.function);
    return entry->second;
  }

  const Target& target_;
  ThreadStacks& walked_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> indexes_;  // by what is looked up
};

}  // namespace

ThreadStacks walk_all(const Target& target, std::size_t max_frames) {
  ThreadStacks walked;
  Collector collector(target, walked);
  for (const Thread& thread : target.threads) collector.walk(thread, max_frames);
  return walked;
}

}  // namespace windlass::cli
