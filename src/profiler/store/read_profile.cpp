#include "profiler/store/read_profile.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "profiler/export/merge.h"
#include "profiler/export/stack_nodes.h"
#include "profiler/store/batch_rows.h"
#include "profiler/store/id_numbers.h"

namespace windlass::store {

namespace {

// Of all samples together: a GiB.
constexpr std::uint64_t kMostFrames = std::uint64_t{1} << 28;
constexpr const char* kTooManyFrames =
    "the range has more frames than the limit. Way out: a shorter range, or a choice of labels";
constexpr const char* kLeftOut = "[stacks left out]";

// What each row adds to its stack's weight. The value of an event that has no values is how often it was seen. Events
// have units of their own, so a weight is a share of the event.
std::vector<double> weights_of(const Stacks& stacks) {
  struct Total {
    double count = 0, value = 0;
  };
  std::vector<Total> totals(stacks.events.size());
  for (const StackSums& stack : stacks.stacks) {
    totals[stack.event].count += static_cast<double>(stack.sums.count);
    totals[stack.event].value += static_cast<double>(stack.sums.value);
  }
  std::vector<double> weights;
  weights.reserve(stacks.stacks.size());
  for (const StackSums& stack : stacks.stacks) {
    const auto& [count, value] = totals[stack.event];
    if (value > 0)
      weights.push_back(static_cast<double>(stack.sums.value) / value);
    else
      weights.push_back(count > 0 ? static_cast<double>(stack.sums.count) / count : 0);
  }
  return weights;
}

// The stacks of which frames are read: all, or the heaviest ones.
class ChosenStacks {
 public:
  ChosenStacks(const Stacks& stacks, std::size_t most) {
    for (const StackSums& stack : stacks.stacks) numbers_.number_of(stack.stack);
    places_.resize(numbers_.ids().size());
    if (places_.size() > most) leave_out(stacks, most);
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (places_[i] == profile::kNone) continue;
      places_[i] = static_cast<std::uint32_t>(ids_.size());
      ids_.push_back(numbers_.ids()[i]);
    }
  }
  [[nodiscard]] const std::vector<std::uint64_t>& ids() const { return ids_; }
  // A place in ids(). kNone: left out.
  [[nodiscard]] std::uint32_t place_of(std::uint64_t stack) const { return places_[*numbers_.find(stack)]; }
  [[nodiscard]] std::size_t left_out() const { return places_.size() - ids_.size(); }
  // Of all events that have samples: 0 to 1.
  [[nodiscard]] double left_out_share() const { return left_out_share_; }

 private:
  void leave_out(const Stacks& stacks, std::size_t most) {
    const std::vector<double> of_rows = weights_of(stacks);
    std::vector<double> weights(places_.size());
    for (std::size_t i = 0; i < of_rows.size(); ++i) weights[*numbers_.find(stacks.stacks[i].stack)] += of_rows[i];
    std::vector<std::uint32_t> order(places_.size());
    std::iota(order.begin(), order.end(), 0);
    const auto behind = order.begin() + static_cast<std::ptrdiff_t>(most);
    std::nth_element(order.begin(), behind, order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return weights[a] != weights[b] ? weights[a] > weights[b] : numbers_.ids()[a] < numbers_.ids()[b];
    });
    double without = 0;
    for (auto number = behind; number != order.end(); ++number) {
      without += weights[*number];
      places_[*number] = profile::kNone;
    }
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    left_out_share_ = all > 0 ? without / all : 0;
  }

  IdNumbers numbers_;
  std::vector<std::uint32_t> places_;  // of each number
  std::vector<std::uint64_t> ids_;
  double left_out_share_ = 0;
};

class ProfileMaker {
 public:
  explicit ProfileMaker(Stacks&& stacks) : stacks_(std::move(stacks)) {}

  Expected<profile::Profile> make(ProfileStore& store, std::size_t most_stacks) {
    const ChosenStacks chosen(stacks_, most_stacks);
    auto frames = store.frames(chosen.ids());
    if (!frames) return Failure(frames.error());
    take_frames(*frames);
    take_events();
    take_labels();
    std::uint64_t copied = 0;  // a short file may name a long stack in many rows
    for (const StackSums& stack : stacks_.stacks) {
      const std::uint32_t place = chosen.place_of(stack.stack);
      if (place == profile::kNone) {
        if (!leave_out(stack)) return fail(ErrorCode::kLimit, kTooLargeSums, 0);
        continue;
      }
      const auto& locations = frames->stacks[place];
      copied += locations.size();
      if (copied > kMostFrames) return fail(ErrorCode::kLimit, kTooManyFrames, 0, kMostFrames);
      add(stack, locations);
    }
    if (chosen.left_out() != 0) add_left_out(chosen);
    if (const auto sums = exporter::check_sums(made_); !sums) return Failure(sums.error());
    return std::move(made_);
  }

 private:
  // Samples that differ in nothing but the stack become one. False: more than 64 bits.
  bool leave_out(const StackSums& stack) {
    const auto [place, is_new] = left_out_.try_emplace({stack.event, stack.labels, stack.end, stack.certainty}, stack);
    return is_new || add_to(place->second.sums, stack.sums);
  }
  void add_left_out(const ChosenStacks& chosen) {
    const auto function = static_cast<std::uint32_t>(made_.functions.size());
    made_.functions.push_back({.name = kLeftOut, .system_name = kLeftOut});
    const auto location = static_cast<std::uint32_t>(made_.locations.size());
    made_.locations.push_back({.lines = {{function, 0}}});
    for (const auto& [what, sums] : left_out_) add(sums, {location});
    made_.comments.push_back(
        fmt::format("the heaviest {} stacks; {} others, with {:.1f}% of the samples' weight, are {}",
                    chosen.ids().size(), chosen.left_out(), chosen.left_out_share() * 100, kLeftOut));
  }
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
    const std::uint32_t node = interner_.node_of(locations);
    made_.samples.push_back({.locations = pool_.at_node(node, static_cast<std::uint32_t>(locations.size())),
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
  const profile::Stack pool_ = profile::Stack::in_new_pool();  // of all samples: exporters need not intern them again
  exporter::StackInterner interner_{*pool_.pool()};
  std::vector<std::uint32_t> events_, label_sets_;  // places in `made_` of those of `stacks_`
  std::unordered_map<std::string, std::uint32_t> texts_;
  // By event, labels, end and certainty.
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint8_t, std::uint8_t>, StackSums> left_out_;
};

}  // namespace

Expected<profile::Profile> read_profile(ProfileStore& store, const Filter& filter, std::uint64_t from, std::uint64_t to,
                                        std::size_t most_stacks) {
  auto stacks = store.stacks(filter, from, to);
  if (!stacks) return Failure(stacks.error());
  return ProfileMaker(std::move(*stacks)).make(store, most_stacks);
}

}  // namespace windlass::store
