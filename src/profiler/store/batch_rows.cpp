#include "profiler/store/batch_rows.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "profiler/export/processes.h"

namespace windlass::store {

namespace {

// The label that names a process's program (docs/reference/labels.md).
constexpr std::string_view kExecutableName = "process.executable.name";

bool is_sound(const profile::Profile& profile, const profile::Sample& sample) {
  const auto is_location = [&](std::uint32_t location) { return location < profile.locations.size(); };
  return sample.event < profile.events.size() && sample.labels < profile.label_sets.size() &&
         std::ranges::all_of(sample.locations, is_location);
}

class RowMaker {
 public:
  explicit RowMaker(const Batch& batch) : batch_(batch), profile_(batch.profile) {
    for (exporter::Process& process : exporter::processes_of(profile_))
      processes_.emplace(process.pid, std::move(process.comm));
  }

  bool add(const profile::Sample& sample) {
    const std::uint32_t labels = labels_of(sample);
    const std::uint32_t stack = stack_of(sample);
    const auto [place, is_new] = places_.try_emplace({sample.event, labels, stack, sample.end, sample.certainty},
                                                     static_cast<std::uint32_t>(made_.rows.size()));
    if (is_new) made_.rows.push_back({sample.event, labels, stack, sample.end, sample.certainty, {}});
    const std::uint64_t period = profile_.events[sample.event].period;
    std::uint64_t value = sample.value;
    const bool fits = period == 0 || !__builtin_mul_overflow(sample.count, period, &value);
    return fits && add_to(made_.rows[place->second].sums, {sample.count, value});
  }
  [[nodiscard]] BatchRows take() { return std::move(made_); }

 private:
  std::uint32_t labels_of(const profile::Sample& sample) {
    const std::tuple key(sample.labels, sample.comm, sample.pid, sample.tid);
    const auto [place, is_new] = sets_.try_emplace(key, static_cast<std::uint32_t>(made_.label_sets.size()));
    if (is_new) made_.label_sets.push_back(label_set(sample));
    return place->second;
  }
  [[nodiscard]] LabelSet label_set(const profile::Sample& sample) const {
    LabelSet set{.host = batch_.id.host,
                 .process = processes_.at(sample.pid),
                 .thread = {},
                 .pid = sample.pid,
                 .tid = sample.tid,
                 .labels = {}};
    if (sample.comm < profile_.strings.size()) set.thread = profile_.strings[sample.comm];
    for (const profile::Label& label : profile_.label_sets[sample.labels]) {
      set.labels.push_back({profile_.strings[label.key], profile_.strings[label.value]});
      if (set.labels.back().key == kExecutableName) set.process = set.labels.back().value;
    }
    return set;
  }
  std::uint32_t stack_of(const profile::Sample& sample) {
    const auto [place, is_new] = stacks_.try_emplace(sample.locations, static_cast<std::uint32_t>(made_.stacks.size()));
    if (is_new) made_.stacks.push_back(sample.locations);
    return place->second;
  }

  const Batch& batch_;
  const profile::Profile& profile_;
  std::unordered_map<std::uint32_t, std::string> processes_;
  BatchRows made_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>, std::uint32_t> sets_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> stacks_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint8_t, std::uint8_t>, std::uint32_t> places_;
};

}  // namespace

Expected<BatchRows> rows_of(const Batch& batch) {
  RowMaker maker(batch);
  for (std::size_t i = 0; i < batch.profile.samples.size(); ++i) {
    const profile::Sample& sample = batch.profile.samples[i];
    if (!is_sound(batch.profile, sample)) return fail(ErrorCode::kOutOfRange, "a sample names what is not there", i);
    if (!maker.add(sample)) return fail(ErrorCode::kLimit, kTooLargeSums, i);
  }
  return maker.take();
}

}  // namespace windlass::store
