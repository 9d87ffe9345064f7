#include "profiler/export/labels.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "profiler/export/pprof_fields.h"
#include "profiler/export/processes.h"

namespace windlass::exporter {

using profile::kNone;

namespace {

// What stands in for a label in each sample.
enum class Field { kNo, kComm, kPid, kTid };
Field field_of(std::string_view key) {
  if (key == pprof::kCommLabel) return Field::kComm;
  if (key == pprof::kPidLabel) return Field::kPid;
  return key == pprof::kTidLabel ? Field::kTid : Field::kNo;
}
std::uint32_t number_of(const profile::Sample& sample, Field field) {
  return field == Field::kPid ? sample.pid : field == Field::kTid ? sample.tid : sample.comm;
}

// A field's number as people read it.
class FieldTexts {
 public:
  FieldTexts(const profile::Profile& profile, Field field) : profile_(profile), field_(field) {
    if (field == Field::kPid)
      for (Process& process : processes_of(profile)) processes_.emplace(process.pid, std::move(process.name));
  }
  [[nodiscard]] std::string text(std::uint32_t number) const {
    if (field_ == Field::kPid) return processes_.at(number);
    if (field_ == Field::kTid) return fmt::format("tid {}", number);
    return number < profile_.strings.size() ? profile_.strings[number] : "[unknown]";
  }

 private:
  const profile::Profile& profile_;
  Field field_;
  std::unordered_map<std::uint32_t, std::string> processes_;
};

LabelShares sorted(std::string_view key, std::vector<LabelShare> shares, std::uint64_t without) {
  std::ranges::stable_sort(shares, std::ranges::greater(), &LabelShare::weight);
  return {std::string(key), std::move(shares), without};
}

LabelShares field_shares(const profile::Profile& profile, profile::ValueType type, std::string_view key) {
  const Field field = field_of(key);
  std::unordered_map<std::uint32_t, std::uint64_t> weights;
  for (const profile::Sample& sample : profile.samples)
    if (const std::uint64_t weight = weight_of(profile, sample, type)) weights[number_of(sample, field)] += weight;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> in_order(weights.begin(), weights.end());
  std::ranges::sort(in_order);
  const FieldTexts texts(profile, field);
  std::vector<LabelShare> shares;
  for (const auto& [number, weight] : in_order) shares.push_back({texts.text(number), weight});
  return sorted(key, std::move(shares), 0);
}

// The shares of one label, while they are added up.
struct Adding {
  std::uint32_t key = kNone;
  std::vector<LabelShare> shares;
  std::unordered_map<std::uint32_t, std::size_t> places;  // in `shares`, by the value
  std::uint64_t with = 0;
  std::size_t last_set = ~std::size_t{0};
};

}  // namespace

std::vector<LabelShares> label_shares(const profile::Profile& profile, profile::ValueType type) {
  if (profile.label_sets.size() < 2) return {};
  std::vector<std::uint64_t> weights(profile.label_sets.size());
  std::uint64_t total = 0;
  for (const profile::Sample& sample : profile.samples) {
    const std::uint64_t weight = weight_of(profile, sample, type);
    weights[sample.labels] += weight;
    total += weight;
  }
  std::vector<Adding> labels;
  std::unordered_map<std::uint32_t, std::size_t> places;
  for (std::size_t set = 0; set < weights.size(); ++set) {
    if (weights[set] == 0) continue;
    for (const profile::Label& label : profile.label_sets[set]) {
      const auto [place, is_new] = places.try_emplace(label.key, labels.size());
      if (is_new) labels.push_back({.key = label.key, .shares = {}, .places = {}});
      Adding& to = labels[place->second];
      const auto [share, is_new_value] = to.places.try_emplace(label.value, to.shares.size());
      if (is_new_value) to.shares.push_back({profile.strings[label.value], 0});
      to.shares[share->second].weight += weights[set];
      if (std::exchange(to.last_set, set) != set) to.with += weights[set];
    }
  }
  std::vector<LabelShares> all;
  for (Adding& label : labels)
    all.push_back(sorted(profile.strings[label.key], std::move(label.shares), total - label.with));
  std::ranges::stable_sort(all, {}, &LabelShares::without);
  return all;
}

LabelShares label_shares(const profile::Profile& profile, profile::ValueType type, std::string_view key) {
  if (field_of(key) != Field::kNo) return field_shares(profile, type, key);
  for (LabelShares& label : label_shares(profile, type))
    if (label.key == key) return std::move(label);
  LabelShares none{std::string(key), {}, 0};
  for (const profile::Sample& sample : profile.samples) none.without += weight_of(profile, sample, type);
  return none;
}

std::vector<std::string> label_keys(const profile::Profile& profile) {
  std::vector<bool> used(profile.label_sets.size()), seen(profile.strings.size());
  for (const profile::Sample& sample : profile.samples) used[sample.labels] = true;
  std::vector<std::string> keys;
  for (std::size_t set = 0; set < used.size(); ++set)
    for (const profile::Label& label : profile.label_sets[set])
      if (used[set] && !seen[label.key]) {
        seen[label.key] = true;
        keys.push_back(profile.strings[label.key]);
      }
  for (const std::string_view key : {pprof::kCommLabel, pprof::kPidLabel, pprof::kTidLabel}) keys.emplace_back(key);
  return keys;
}

namespace {

// For each sample, whether it has one of the values of the filters with this key.
class Matcher {
 public:
  Matcher(const profile::Profile& profile, std::string_view key, std::span<const LabelFilter> filters)
      : field_(field_of(key)) {
    std::vector<std::string_view> values;
    for (const LabelFilter& filter : filters)
      if (filter.key == key) values.push_back(filter.value);
    if (field_ == Field::kPid || field_ == Field::kTid) {
      for (const std::string_view value : values) add_number(value);
      return;
    }
    std::vector<bool> wanted(profile.strings.size());
    for (std::uint32_t i = 0; i < profile.strings.size(); ++i)
      wanted[i] = std::ranges::find(values, profile.strings[i]) != values.end();
    if (field_ == Field::kComm) {
      for (std::uint32_t i = 0; i < wanted.size(); ++i)
        if (wanted[i]) numbers_.push_back(i);
      return;
    }
    for (const auto& set : profile.label_sets)
      sets_.push_back(std::ranges::any_of(
          set, [&](const auto& label) { return profile.strings[label.key] == key && wanted[label.value]; }));
  }
  [[nodiscard]] bool matches(const profile::Sample& sample) const {
    if (field_ == Field::kNo) return sets_[sample.labels];
    return std::ranges::find(numbers_, number_of(sample, field_)) != numbers_.end();
  }

 private:
  void add_number(std::string_view text) {
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) numbers_.push_back(number);
  }

  Field field_;
  std::vector<std::uint32_t> numbers_;
  std::vector<bool> sets_;
};

}  // namespace

std::vector<std::string> label_values(const profile::Profile& profile, std::string_view key) {
  const Field field = field_of(key);
  std::vector<std::uint32_t> found;
  std::vector<bool> used(profile.label_sets.size());
  for (const profile::Sample& sample : profile.samples) {
    used[sample.labels] = true;
    if (field != Field::kNo) found.push_back(number_of(sample, field));
  }
  const bool is_number = field == Field::kPid || field == Field::kTid;
  for (std::size_t set = 0; set < used.size() && field == Field::kNo; ++set)
    for (const profile::Label& label : profile.label_sets[set])
      if (used[set] && profile.strings[label.key] == key) found.push_back(label.value);
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  std::vector<std::string> values;
  for (const std::uint32_t one : found)
    if (is_number || one < profile.strings.size())
      values.push_back(is_number ? std::to_string(one) : profile.strings[one]);
  return values;
}

void keep_samples(profile::Profile& profile, std::span<const LabelFilter> filters) {
  std::vector<std::string_view> keys;
  for (const LabelFilter& filter : filters)
    if (std::ranges::find(keys, filter.key) == keys.end()) keys.push_back(filter.key);
  for (const std::string_view key : keys) {
    const Matcher matcher(profile, key, filters);
    std::erase_if(profile.samples, [&](const auto& sample) { return !matcher.matches(sample); });
  }
}

void group_samples(profile::Profile& profile, std::string_view key) {
  const Field field = field_of(key);
  if (field == Field::kComm) return;
  std::unordered_map<std::string, std::uint32_t> strings;
  const auto string_of = [&](std::string text) {
    const auto [entry, is_new] = strings.try_emplace(text, static_cast<std::uint32_t>(profile.strings.size()));
    if (is_new) profile.strings.push_back(std::move(text));
    return entry->second;
  };
  if (field == Field::kNo) {
    profile.roots.assign(profile.label_sets.size(), string_of(fmt::format("(no {})", key)));
    for (std::size_t set = 0; set < profile.label_sets.size(); ++set)
      for (const profile::Label& label : profile.label_sets[set])
        if (profile.strings[label.key] == key) {
          profile.roots[set] = label.value;
          break;
        }
    return;
  }
  // Each number gets label sets of its own.
  const FieldTexts texts(profile, field);
  std::unordered_map<std::uint64_t, std::uint32_t> sets;
  std::vector<std::vector<profile::Label>> label_sets{{}};
  profile.roots.assign(1, kNone);
  for (profile::Sample& sample : profile.samples) {
    const std::uint32_t number = number_of(sample, field);
    const auto [entry, is_new] =
        sets.try_emplace(std::uint64_t{sample.labels} << 32 | number, static_cast<std::uint32_t>(label_sets.size()));
    if (is_new) {
      label_sets.push_back(profile.label_sets[sample.labels]);
      profile.roots.push_back(string_of(texts.text(number)));
    }
    sample.labels = entry->second;
  }
  profile.label_sets = std::move(label_sets);
}

}  // namespace windlass::exporter
