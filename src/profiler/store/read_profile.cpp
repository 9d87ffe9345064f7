#include "profiler/store/read_profile.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "profiler/export/merge.h"

namespace windlass::store {

namespace {

// Of all samples together: a GiB.
constexpr std::uint64_t kMostFrames = std::uint64_t{1} << 28;
constexpr const char* kTooManyFrames =
    "the range has more frames than the limit. Way out: a shorter range, or a choice of labels";

class ProfileMaker {
 public:
  explicit ProfileMaker(Stacks&& stacks) : stacks_(std::move(stacks)) {}

  Expected<profile::Profile> make(ProfileStore& store) {
    std::unordered_map<std::uint64_t, std::uint32_t> places;
    std::vector<std::uint64_t> wanted;
    for (const StackSums& stack : stacks_.stacks)
      if (places.try_emplace(stack.stack, static_cast<std::uint32_t>(wanted.size())).second)
        wanted.push_back(stack.stack);
    auto frames = store.frames(wanted);
    if (!frames) return Failure(frames.error());
    take_frames(*frames);
    take_events();
    take_labels();
    std::uint64_t copied = 0;  // a short file may name a long stack in many rows
    for (const StackSums& stack : stacks_.stacks) {
      const auto& locations = frames->stacks[places.at(stack.stack)];
      copied += locations.size();
      if (copied > kMostFrames) return fail(ErrorCode::kLimit, kTooManyFrames, 0, kMostFrames);
      add(stack, locations);
    }
    if (const auto sums = exporter::check_sums(made_); !sums) return Failure(sums.error());
    return std::move(made_);
  }

 private:
  void take_frames(Frames& frames) {
    made_.modules = std::move(frames.modules);
    made_.functions = std::move(frames.functions);
    made_.locations = std::move(frames.locations);
    made_.start_unix_ns = stacks_.begin_ns;
    made_.duration_ns = stacks_.duration_ns;
    made_.lost = stacks_.lost;
    made_.ends_known = stacks_.ends_known;
    made_.comments = std::move(stacks_.comments);
  }
  void take_events() {
    if (stacks_.events.empty()) return;
    made_.events.clear();
    for (const profile::Event& event : stacks_.events) {
      const auto same = [&](const profile::Event& other) {
        return other.name == event.name && other.unit == event.unit && other.counted == event.counted;
      };
      const auto known = std::ranges::find_if(made_.events, same);
      events_.push_back(static_cast<std::uint32_t>(known - made_.events.begin()));
      if (known == made_.events.end())
        made_.events.push_back(event);
      else if (known->period != event.period)
        known->period = 0;
    }
    made_.shown_event = events_[stacks_.shown_event];
  }
  std::uint32_t text(const std::string& text) {
    const auto [place, is_new] = texts_.try_emplace(text, static_cast<std::uint32_t>(made_.strings.size()));
    if (is_new) made_.strings.push_back(text);
    return place->second;
  }
  // The host is a label as others, unless samples have their own of that name.
  static std::vector<Label> labels_of(const LabelSet& set) {
    std::vector<Label> labels = set.labels;
    if (!set.host.empty() && std::ranges::find(labels, kHostLabel, &Label::key) == labels.end())
      labels.push_back({std::string(kHostLabel), set.host});
    return labels;
  }
  void take_labels() {
    std::map<std::vector<Label>, std::uint32_t> known{{{}, 0}};
    for (const LabelSet& set : stacks_.label_sets) {
      const std::vector<Label> all = labels_of(set);
      const auto [place, is_new] = known.try_emplace(all, static_cast<std::uint32_t>(made_.label_sets.size()));
      label_sets_.push_back(place->second);
      if (!is_new) continue;
      auto& labels = made_.label_sets.emplace_back();
      for (const Label& label : all) labels.push_back({text(label.key), text(label.value)});
    }
  }
  void add(const StackSums& stack, const std::vector<std::uint32_t>& locations) {
    const LabelSet& labels = stacks_.label_sets[stack.labels];
    made_.samples.push_back({.locations = locations,
                             .count = stack.sums.count,
                             .pid = labels.pid,
                             .tid = labels.tid,
                             .comm = labels.thread ? text(*labels.thread) : profile::kNone,
                             .end = stack.end,
                             .certainty = stack.certainty,
                             .value = stack.sums.value,
                             .event = events_[stack.event],
                             .labels = label_sets_[stack.labels]});
  }

  Stacks stacks_;
  profile::Profile made_;
  std::vector<std::uint32_t> events_, label_sets_;  // places in `made_` of those of `stacks_`
  std::unordered_map<std::string, std::uint32_t> texts_;
};

}  // namespace

Expected<profile::Profile> read_profile(ProfileStore& store, const Filter& filter, std::uint64_t from,
                                        std::uint64_t to) {
  auto stacks = store.stacks(filter, from, to);
  if (!stacks) return Failure(stacks.error());
  return ProfileMaker(std::move(*stacks)).make(store);
}

}  // namespace windlass::store
