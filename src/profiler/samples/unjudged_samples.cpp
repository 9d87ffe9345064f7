#include "profiler/samples/unjudged_samples.h"

#include <string_view>

#include "windlass_ends.h"

namespace windlass::profiler {

void UnjudgedSamples::push(const wl_event_head& head, const StackRecord& stack, std::shared_ptr<const MapSet> maps,
                           std::optional<wl_stack_key> key) {
  waiting_.push_back({.head = head,
                      .stack = stack,
                      .kernel = {stack.kernel.begin(), stack.kernel.end()},
                      .user = {stack.user.begin(), stack.user.end()},
                      .names = {stack.names.begin(), stack.names.end()},
                      .maps = std::move(maps),
                      .key = key});
}

void UnjudgedSamples::take(const Use& use) {
  for (const Waiting& it : std::exchange(waiting_, {})) {
    StackRecord stack = it.stack;
    stack.comm = std::string_view(it.head.comm, stack.comm.size());
    stack.kernel = it.kernel;
    stack.user = it.user;
    stack.names = it.names;
    use(it.head, stack, it.maps.get(), it.key);
  }
}

void UnjudgedSamples::for_each_maps(const std::function<void(const MapSet& maps)>& use) const {
  for (const Waiting& it : waiting_)
    if (it.maps != nullptr) use(*it.maps);
}

void cut_to_innermost(StackRecord& stack) {
  if (stack.user.empty()) return;
  stack.user = stack.user.first(1);
  if (!stack.names.empty()) stack.names = stack.names.first(1);
  stack.end = WL_END_REGISTER_LOST;
  stack.certainty = WL_DESCRIBED;
}

}  // namespace windlass::profiler
