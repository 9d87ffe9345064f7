// The labels of a pprof file's samples.
#pragma once

#include <cstdint>
#include <optional>
#include <protozero/data_view.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profiler/profile/profile.h"

namespace windlass::exporter {

// What all labels of a sample together say.
struct SampleLabels {
  std::uint32_t pid = 0, tid = 0;
  std::uint32_t comm = profile::kNone;  // An index into Profile::strings.
  std::uint32_t set = 0;                // An index into Profile::label_sets.
  std::uint8_t end = 0, certainty = 0;
  std::uint64_t items = 0;                     // In the set.
  std::optional<std::int64_t> wrong_string{};  // An index past the string table.
};

// Reads labels, and adds their strings and sets to the profile. Labels that another sample had are read once: nearly
// all samples have the labels of an earlier one. Memory: O(kMostKnown labels).
class PprofLabels {
 public:
  PprofLabels(const std::vector<std::string_view>& strings, profile::Profile& to) : strings_(strings), profile_(to) {}

  // A label of the sample at hand: its message.
  void add(protozero::data_view label);
  // Of the labels that were added since the last call. Valid until the next one. Throws a protozero::exception if a
  // label is damaged.
  const SampleLabels& take();

 private:
  static constexpr std::size_t kMostKnown = 1 << 16;

  SampleLabels read();
  void read_label(protozero::data_view label, SampleLabels& to);
  std::string_view string_at(std::int64_t index, SampleLabels& labels) const;
  std::uint32_t intern(std::string_view text);
  std::uint32_t intern_set();

  const std::vector<std::string_view>& strings_;
  profile::Profile& profile_;
  std::string bytes_;                                    // of the sample at hand: each label behind its size
  std::unordered_map<std::string, SampleLabels> known_;  // by their bytes
  const std::pair<const std::string, SampleLabels>* last_ = nullptr;
  std::unordered_map<std::string_view, std::uint32_t> interned_;
  std::vector<profile::Label> set_;                            // that is being read
  std::unordered_map<std::string, std::uint32_t> known_sets_;  // by their bytes
};

}  // namespace windlass::exporter
