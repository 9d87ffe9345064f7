#include "profiler/samples/late_samples.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "profiler/samples/user_frame.h"

namespace windlass::profiler {

bool LateSamples::has_to_wait(const MapSet& maps, std::span<const std::uint64_t> user, std::uint64_t time,
                              std::uint64_t ended) {
  if (maps.published().empty()) return false;
  return std::ranges::any_of(user, [&](std::uint64_t frame) {
    const Mapping* mapping = maps.find(lookup_address(frame));
    const auto* code = mapping != nullptr ? maps.published_of(*mapping) : nullptr;
    return code != nullptr && !(*code)->is_settled(time, ended);
  });
}

void LateSamples::push(WalkedSample sample) {
  std::deque<Waiting>& waiting = by_process_[sample.head.tgid];
  std::size_t bytes = sizeof(Waiting);
  bytes += (sample.kernel.capacity() + sample.user.capacity() + sample.functions.capacity()) * 8;
  bytes += sample.interpreted.size() * sizeof(wl_interpreted_frame);
  if (waiting.empty() || waiting.back().sample.maps != sample.maps)
    bytes += sample.maps->mappings().size() * sizeof(Mapping);
  bytes_ += bytes;
  waiting.push_back({std::move(sample), bytes});
}

void LateSamples::take_first(std::deque<Waiting>& waiting, const Use& use) {
  const Waiting first = std::move(waiting.front());
  waiting.pop_front();
  bytes_ -= first.bytes;
  use(first.sample);
}

void LateSamples::take_settled(const std::function<std::uint64_t(std::uint32_t tgid)>& ended, const Use& use) {
  for (auto at = by_process_.begin(); at != by_process_.end();) {
    auto& [tgid, waiting] = *at;
    const std::uint64_t end = ended(tgid);
    const auto is_settled = [&](const WalkedSample& sample) {
      return !has_to_wait(*sample.maps, sample.user, sample.head.time, end);
    };
    while (!waiting.empty() && is_settled(waiting.front().sample)) take_first(waiting, use);
    at = waiting.empty() ? by_process_.erase(at) : std::next(at);
  }
}

void LateSamples::take_excess(const Use& use) {
  while (bytes_ > max_bytes_) {
    const auto most =
        std::ranges::max_element(by_process_, {}, [](const auto& process) { return process.second.size(); });
    for (std::size_t i = most->second.size() / 4 + 1; i != 0; --i) take_first(most->second, use);
    if (most->second.empty()) by_process_.erase(most);
  }
}

void LateSamples::for_each(const Use& use) const {
  for (const auto& [tgid, waiting] : by_process_)
    for (const Waiting& it : waiting) use(it.sample);
}

}  // namespace windlass::profiler
