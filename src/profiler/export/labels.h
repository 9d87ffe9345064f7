// Labels of samples: shares of their values, and profiles narrowed or grouped by them. Besides the labels that a
// profile has, "comm", "pid" and "tid" are labels of every sample.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/profile/profile.h"

namespace windlass::exporter {

struct LabelShare {
  std::string text;  // The value; for people, "node (pid 12)" of "pid"
  std::uint64_t weight = 0;
};
struct LabelShares {
  std::string key;
  std::vector<LabelShare> shares;  // by descending weight
  std::uint64_t without = 0;       // of samples that have no such label
};

// The labels of samples with a value of `type`, "comm", "pid" and "tid" left out: those of most samples first. A sample
// that has a label twice counts for both values.
[[nodiscard]] std::vector<LabelShares> label_shares(const profile::Profile& profile, profile::ValueType type);
// Of one label, which may be "comm", "pid" or "tid".
[[nodiscard]] LabelShares label_shares(const profile::Profile& profile, profile::ValueType type, std::string_view key);

// The keys that samples have, whatever their event, in the order of the profile; then "comm", "pid" and "tid".
[[nodiscard]] std::vector<std::string> label_keys(const profile::Profile& profile);
// The values of one of these.
[[nodiscard]] std::vector<std::string> label_values(const profile::Profile& profile, std::string_view key);

struct LabelFilter {
  std::string key, value;  // "pid", "12"
};
// Takes away the samples that have not, for each key of the filters, one of the values given for it.
void keep_samples(profile::Profile& profile, std::span<const LabelFilter> filters);

// The value of the label becomes the root of each stack, above the thread's name: "(no reason)" where there is none.
// Changes nothing for "comm".
void group_samples(profile::Profile& profile, std::string_view key);

}  // namespace windlass::exporter
