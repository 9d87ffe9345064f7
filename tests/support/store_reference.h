// The answers of a store, computed from the profiles themselves. It shares no code with a store.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "profiler/store/store.h"

namespace windlass::testing {

struct KeptBatch {
  store::BatchId id;
  std::uint64_t begin_ns, end_ns;
  profile::Profile profile;
  [[nodiscard]] store::Batch batch() const { return {id, begin_ns, end_ns, profile}; }
};

inline std::string text_of(const profile::Event& event) {
  return fmt::format("{}/{}/{}/{}", event.name, event.unit, event.counted, event.period);
}
inline std::string text_of(const profile::Module* module) {
  if (module == nullptr) return "none";
  return fmt::format("{}|{}|{:x}|{:x}|{:x}|{}|{}", module->path, module->build_id, module->begin, module->end,
                     module->file_offset, module->pid, module->is_kernel);
}
inline std::string text_of(const profile::Location& location, const std::vector<profile::Module>& modules,
                           const std::vector<profile::Function>& functions) {
  std::string text =
      fmt::format("<{} {:x} {:x} {}", text_of(location.module < modules.size() ? &modules[location.module] : nullptr),
                  location.address, location.function_begin, location.interpreted);
  for (const profile::Line& line : location.lines) {
    if (line.function < functions.size()) {
      const profile::Function& f = functions[line.function];
      text += fmt::format(" ({}|{}|{}|{})", f.name, f.system_name, f.file, f.start_line);
    }
    text += fmt::format(":{}", line.line);
  }
  return text + ">";
}
inline std::string text_of(const store::LabelSet& set) {
  std::string text =
      fmt::format("{}|{}|{}|{}|{}", set.host, set.process, set.thread.value_or("(none)"), set.pid, set.tid);
  for (const store::Label& label : set.labels) text += fmt::format("|{}={}", label.key, label.value);
  return text;
}

using SumsByText = std::map<std::string, store::Sums>;

class StoreReference {
 public:
  void append(const KeptBatch& batch) {
    if (ids_.insert({batch.id.host, batch.id.agent_start_ns, batch.id.sequence}).second) batches_.push_back(batch);
  }

  [[nodiscard]] std::vector<std::string> labels() const {
    std::set<std::string> keys;
    each({}, 0, ~std::uint64_t{0}, [&](const KeptBatch&, const profile::Sample&, const auto& labels) {
      for (const auto& [key, value] : labels) keys.insert(key);
    });
    return {keys.begin(), keys.end()};
  }
  [[nodiscard]] std::vector<std::string> values(const std::string& wanted) const {
    std::set<std::string> values;
    each({}, 0, ~std::uint64_t{0}, [&](const KeptBatch&, const profile::Sample&, const auto& labels) {
      for (const auto& [key, value] : labels)
        if (key == wanted) values.insert(value);
    });
    return {values.begin(), values.end()};
  }
  // Of each event, by its text: the sums of each step that has any.
  [[nodiscard]] std::map<std::string, std::map<std::uint64_t, store::Sums>> series(const store::Filter& filter,
                                                                                   std::uint64_t from, std::uint64_t to,
                                                                                   std::uint64_t step) const {
    std::map<std::string, std::map<std::uint64_t, store::Sums>> all;
    each(filter, from, to, [&](const KeptBatch& batch, const profile::Sample& sample, const auto&) {
      add(all[text_of(batch.profile.events[sample.event])][(batch.begin_ns - from) / step], batch.profile, sample);
    });
    return all;
  }
  // Of each value of the label, and the text of an event.
  [[nodiscard]] std::map<std::pair<std::string, std::string>, store::Sums> totals(const std::string& label,
                                                                                  const store::Filter& filter,
                                                                                  std::uint64_t from,
                                                                                  std::uint64_t to) const {
    std::map<std::pair<std::string, std::string>, store::Sums> all;
    each(filter, from, to, [&](const KeptBatch& batch, const profile::Sample& sample, const auto& labels) {
      std::set<std::string> values;
      for (const auto& [key, value] : labels)
        if (key == label) values.insert(value);
      for (const std::string& value : values)
        add(all[{value, text_of(batch.profile.events[sample.event])}], batch.profile, sample);
    });
    return all;
  }
  [[nodiscard]] SumsByText stacks(const store::Filter& filter, std::uint64_t from, std::uint64_t to) const {
    SumsByText all;
    each(filter, from, to, [&](const KeptBatch& batch, const profile::Sample& sample, const auto&) {
      const profile::Profile& p = batch.profile;
      std::string text = fmt::format("{} {} {} {} ", text_of(p.events[sample.event]), set_text(batch, sample),
                                     sample.end, sample.certainty);
      for (const auto location : sample.locations) text += text_of(p.locations[location], p.modules, p.functions);
      add(all[text], p, sample);
    });
    return all;
  }
  [[nodiscard]] std::uint64_t lost(std::uint64_t from, std::uint64_t to) const {
    std::uint64_t sum = 0;
    for (const KeptBatch& batch : batches_)
      if (batch.begin_ns >= from && batch.begin_ns < to) sum += batch.profile.lost;
    return sum;
  }

 private:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  static void add(store::Sums& to, const profile::Profile& p, const profile::Sample& sample) {
    to.count += sample.count;
    const std::uint64_t period = p.events[sample.event].period;
    to.value += period != 0 ? sample.count * period : sample.value;
  }
  static std::string comm_of(const profile::Profile& p, std::uint32_t comm) {
    return comm < p.strings.size() ? p.strings[comm] : "[unknown]";
  }
  static std::string process_of(const KeptBatch& batch, const profile::Sample& of) {
    const profile::Profile& p = batch.profile;
    for (const profile::Label& label : p.label_sets[of.labels])
      if (p.strings[label.key] == "process.executable.name") return p.strings[label.value];
    std::map<std::uint32_t, std::uint64_t> of_main, of_any;
    for (const profile::Sample& sample : p.samples) {
      if (sample.pid != of.pid) continue;
      of_any[sample.comm] += sample.count;
      if (sample.tid == sample.pid) of_main[sample.comm] += sample.count;
    }
    const auto& names = of_main.empty() ? of_any : of_main;
    const auto most = std::ranges::max_element(names, {}, [](const auto& name) { return name.second; });
    return comm_of(p, most->first);
  }
  static std::string set_text(const KeptBatch& batch, const profile::Sample& sample) {
    const profile::Profile& p = batch.profile;
    std::string text =
        fmt::format("{}|{}|{}|{}|{}", batch.id.host, process_of(batch, sample),
                    sample.comm < p.strings.size() ? p.strings[sample.comm] : "(none)", sample.pid, sample.tid);
    for (const profile::Label& label : p.label_sets[sample.labels])
      text += fmt::format("|{}={}", p.strings[label.key], p.strings[label.value]);
    return text;
  }
  static Labels labels_of(const KeptBatch& batch, const profile::Sample& sample) {
    const profile::Profile& p = batch.profile;
    Labels labels{{"host", batch.id.host},
                  {"process", process_of(batch, sample)},
                  {"pid", std::to_string(sample.pid)},
                  {"tid", std::to_string(sample.tid)}};
    if (sample.comm < p.strings.size()) labels.emplace_back("thread", p.strings[sample.comm]);
    for (const profile::Label& label : p.label_sets[sample.labels])
      labels.emplace_back(p.strings[label.key], p.strings[label.value]);
    return labels;
  }
  static bool fits(const Labels& labels, const store::Filter& filter) {
    return std::ranges::all_of(filter.labels, [&](const store::Label& wanted) {
      return std::ranges::find(labels, std::pair(wanted.key, wanted.value)) != labels.end();
    });
  }
  template <typename Use>
  void each(const store::Filter& filter, std::uint64_t from, std::uint64_t to, Use use) const {
    for (const KeptBatch& batch : batches_) {
      if (batch.begin_ns < from || batch.begin_ns >= to) continue;
      for (const profile::Sample& sample : batch.profile.samples) {
        if (!filter.event.empty() && batch.profile.events[sample.event].name != filter.event) continue;
        if (const Labels labels = labels_of(batch, sample); fits(labels, filter)) use(batch, sample, labels);
      }
    }
  }

  std::vector<KeptBatch> batches_;
  std::set<std::tuple<std::string, std::uint64_t, std::uint64_t>> ids_;
};

// What a store answers, in the texts of the reference.
inline SumsByText texts_of(const store::Stacks& stacks, const store::Frames& frames) {
  SumsByText all;
  for (std::size_t i = 0; i < stacks.stacks.size(); ++i) {
    const store::StackSums& stack = stacks.stacks[i];
    std::string text = fmt::format("{} {} {} {} ", text_of(stacks.events[stack.event]),
                                   text_of(stacks.label_sets[stack.labels]), stack.end, stack.certainty);
    for (const auto location : frames.stacks[i])
      text += text_of(frames.locations[location], frames.modules, frames.functions);
    auto& sums = all[text];
    sums.count += stack.sums.count;
    sums.value += stack.sums.value;
  }
  return all;
}

// Of few values each, so that batches share much. Has everything that a profile may have but times.
class RandomProfiles {
 public:
  explicit RandomProfiles(std::uint32_t seed) : random_(seed) {}

  profile::Profile make(std::uint32_t samples) {
    profile::Profile p;
    p.strings = {
        "main", "worker", "reason", "futex", "disk", "process.executable.name", "sshd", std::string("a\0b\xff", 4)};
    p.events = {{.period = below(2) == 0 ? 1'000'000u : 500'000u},
                {.name = "off-cpu", .unit = "nanoseconds", .counted = "waits"},
                {.name = "faults", .unit = "count", .counted = "faults"}};
    p.shown_event = below(3);
    p.label_sets = {{}, {{2, 3}}, {{2, 4}, {5, 6}}, {{2, 3}, {2, 4}}, {{7, 7}}};
    p.lost = below(5);
    p.duration_ns = 10'000'000'000 + below(1000);
    p.comments = {"recorded by rule", fmt::format("kind {}", below(2))};
    add_frames(p);
    for (std::uint32_t i = 0; i < samples; ++i) add_sample(p);
    return p;
  }
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }

 private:
  void add_frames(profile::Profile& p) {
    p.modules = {{.path = "/usr/bin/app", .build_id = "00ff", .begin = 0x1000, .end = 0x9000, .file_offset = 0x1000},
                 {.path = "[kernel]", .begin = 0xffffffff81000000, .end = 0xffffffffffffffff, .is_kernel = true},
                 {.path = "[anon]", .pid = 100 + below(3)}};
    for (std::uint32_t i = 0; i < 8; ++i)
      p.functions.push_back({.name = fmt::format("f{}", i),
                             .system_name = fmt::format("_Z{}", i),
                             .file = i % 2 == 0 ? "a.c" : "",
                             .start_line = i + 1});
    for (std::uint32_t i = 0; i < 24; ++i) {
      profile::Location location{.module = i % 4 == 3 ? profile::kNone : i % 4, .address = 0x1000 + below(16)};
      if (i % 4 == 1) location.address |= 0xffffffff81000000;
      for (std::uint32_t n = below(3); n > 0; --n) location.lines.push_back({below(8), below(3)});
      if (below(4) == 0) location.lines.push_back({profile::kNone, 7});
      location.interpreted = below(5) == 0;
      location.function_begin = below(2) * 0x1000;
      p.locations.push_back(location);
    }
  }
  void add_sample(profile::Profile& p) {
    const std::uint32_t pid = 100 + below(3);
    profile::Sample sample{
        .count = 1 + below(9), .pid = pid, .tid = pid + below(2), .comm = below(4) == 3 ? profile::kNone : below(2)};
    for (std::uint32_t n = below(6); n > 0; --n) sample.locations.push_back(below(24));
    sample.end = static_cast<std::uint8_t>(below(3));
    sample.certainty = static_cast<std::uint8_t>(below(2));
    sample.event = below(3);
    sample.labels = below(static_cast<std::uint32_t>(p.label_sets.size()));
    sample.value = sample.event == 2 ? sample.count : below(1'000'000'000);
    p.samples.push_back(std::move(sample));
  }

  std::mt19937 random_;
};

}  // namespace windlass::testing
