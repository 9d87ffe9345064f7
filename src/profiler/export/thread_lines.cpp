#include "profiler/export/thread_lines.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "profiler/export/numbers.h"
#include "profiler/export/processes.h"

namespace windlass::exporter {
namespace {

constexpr std::uint64_t kDrawnAs = 1'000'000;  // ns, of a sample that stands for no time

class LineMaker {
 public:
  LineMaker(const profile::Profile& profile, profile::ValueType type) : profile_(profile), type_(type) {}

  ThreadLines make() {
    lines_.made_up = !has_times(profile_);
    if (lines_.made_up) {
      for (const std::uint32_t sample : by_stack()) place_behind(sample);
    } else {
      for (std::uint32_t sample = 0; sample < profile_.samples.size(); ++sample) place_at_times(sample);
    }
    for (ThreadLine& thread : lines_.threads) std::ranges::stable_sort(thread.moments, {}, &Moment::begin);
    name_threads();
    order_threads();
    return std::move(lines_);
  }

 private:
  ThreadLine& line_of(const profile::Sample& sample) {
    const auto [known, is_new] =
        known_.try_emplace({sample.pid, sample.tid}, static_cast<std::uint32_t>(lines_.threads.size()));
    if (is_new) {
      lines_.threads.push_back({.pid = sample.pid, .tid = sample.tid, .name = {}, .process = {}, .moments = {}});
      comms_.emplace_back();
    }
    comms_[known->second][sample.comm] += sample.count;
    return lines_.threads[known->second];
  }

  // What a sample, or a time of it, stands for where it has not lasted for a time of its own.
  [[nodiscard]] std::uint64_t stands_for(const profile::Sample& sample, std::uint64_t count) const {
    const profile::Event& event = profile_.events[sample.event];
    return event.unit == "nanoseconds" && event.period != 0 ? event.period * count : kDrawnAs;
  }

  void place_at_times(std::uint32_t number) {
    const profile::Sample& sample = profile_.samples[number];
    const profile::Event& event = profile_.events[sample.event];
    const std::uint64_t whole = weight_of(profile_, sample, type_);
    if (whole != 0) lines_.left_out += sample.count - sample.times * event.per_time;
    for (const profile::SampleTime& time : times_of(profile_, sample)) {
      Moment moment{.begin = time.begin, .lasted = time.lasted, .sample = number, .is_wait = time.lasted != 0};
      if (whole == 0 && !moment.is_wait) return;
      if (!moment.is_wait) moment.lasted = stands_for(sample, event.per_time);
      if (whole != 0 && type_.counts) moment.weight = event.per_time;
      if (whole != 0 && !type_.counts) moment.weight = event.period != 0 ? event.per_time * event.period : time.lasted;
      line_of(sample).moments.push_back(moment);
    }
  }

  void place_behind(std::uint32_t number) {
    const profile::Sample& sample = profile_.samples[number];
    const std::uint64_t weight = weight_of(profile_, sample, type_);
    if (weight == 0) return;
    const profile::Event& event = profile_.events[sample.event];
    const bool is_wait = event.unit == "nanoseconds" && event.period == 0;
    const std::uint64_t lasted = is_wait ? sample.value : stands_for(sample, sample.count);
    ThreadLine& line = line_of(sample);
    const std::uint64_t begin = line.moments.empty() ? 0 : line.moments.back().begin + line.moments.back().lasted;
    line.moments.push_back(
        {.begin = begin, .lasted = std::max<std::uint64_t>(lasted, 1), .weight = weight, .sample = number});
  }

  // So that stacks with the same callers are neighbours.
  [[nodiscard]] std::vector<std::uint32_t> by_stack() const {
    std::vector<std::uint32_t> order(profile_.samples.size());
    std::iota(order.begin(), order.end(), 0U);
    std::vector<std::vector<std::uint32_t>> stacks;
    for (const profile::Sample& sample : profile_.samples) stacks.emplace_back(sample.locations);
    std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
      return std::lexicographical_compare(stacks[a].rbegin(), stacks[a].rend(), stacks[b].rbegin(), stacks[b].rend());
    });
    return order;
  }

  void name_threads() {
    std::unordered_map<std::uint32_t, std::string> processes;
    for (const Process& process : processes_of(profile_))
      processes[process.pid] = process.name.substr(0, process.name.rfind(" (pid "));
    for (std::size_t i = 0; i < lines_.threads.size(); ++i) {
      ThreadLine& thread = lines_.threads[i];
      const auto most = std::ranges::max_element(comms_[i], {}, [](const auto& comm) { return comm.second; });
      thread.name = most->first < profile_.strings.size() ? profile_.strings[most->first] : "[unknown]";
      thread.process = processes[thread.pid];
    }
  }

  void order_threads() {
    std::unordered_map<std::uint32_t, std::uint64_t> weights;
    for (const ThreadLine& thread : lines_.threads)
      for (const Moment& moment : thread.moments) weights[thread.pid] += moment.weight;
    std::ranges::sort(lines_.threads, {}, [&](const ThreadLine& thread) {
      return std::tuple(~weights[thread.pid], thread.pid, thread.tid != thread.pid, thread.tid);
    });
  }

  const profile::Profile& profile_;
  const profile::ValueType type_;
  ThreadLines lines_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> known_;  // (pid, tid) -> place in the lines
  std::vector<std::map<std::uint32_t, std::uint64_t>> comms_;               // of each thread: its names' samples
};

}  // namespace

ThreadLines thread_lines(const profile::Profile& profile, profile::ValueType type) {
  return LineMaker(profile, type).make();
}

std::string note_of(const ThreadLines& lines) {
  if (lines.made_up)
    return "the samples have no times, so they stand one behind the other in each thread. Way out: record with "
           "--timeline";
  if (lines.left_out == 0) return {};
  return fmt::format("{} samples without a time are left out", grouped(lines.left_out));
}

CodeKind code_kind(const profile::Profile& profile, const profile::Location& location) {
  if (location.module >= profile.modules.size()) return CodeKind::kOther;
  const profile::Module& module = profile.modules[location.module];
  if (module.is_kernel) return CodeKind::kKernel;
  if (module.path == "[anon]") return CodeKind::kGenerated;
  return module.path == "[unmapped]" ? CodeKind::kOther : CodeKind::kUser;
}

Reasons::Reasons(const profile::Profile& profile) : profile_(profile) {
  for (const auto& set : profile.label_sets) {
    const auto found = std::ranges::find_if(set, [&](const auto& one) { return profile.strings[one.key] == "reason"; });
    of_set_.push_back(found != set.end() ? found->value : profile::kNone);
  }
}

std::string_view Reasons::of(const profile::Sample& sample) const {
  const std::uint32_t reason = of_set_[sample.labels];
  return reason != profile::kNone ? profile_.strings[reason] : profile_.events[sample.event].name;
}

}  // namespace windlass::exporter
