// The labels of a pprof file's samples.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <protozero/data_view.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profiler/export/page_buffer.h"
#include "profiler/export/recent_table.h"
#include "profiler/profile/profile.h"

namespace windlass::exporter {

// Lists of labels as bytes, each kept once if a sample had it shortly before: nearly all samples have the labels of an
// earlier one. Labels have no meaning before the strings are known, which stand behind the samples.
class PprofLabelLists {
 public:
  // All fields of the sample at hand, tags and all, if that list is known; else false, and nothing is added.
  bool add_known(protozero::data_view labels);
  // A field of it. It stays where it is until take().
  void add(protozero::data_view label);
  // The number of the list of what was added since the last call: 0, 1, 2, ... `at`: where the sample is in the
  // message.
  std::uint32_t take(std::uint64_t at);

  [[nodiscard]] std::size_t size() const { return size_; }
  // Calls take(at, list) for each list in the order of their numbers, as long as it returns true. `at`: of the first
  // sample that had it.
  template <typename Take>
  void for_each(Take take) const {
    for (std::size_t place = 0; place < bytes_.size();) {
      Head head;
      std::memcpy(&head, bytes_.data() + place, sizeof head);
      place += sizeof head;
      if (!take(head.at, protozero::data_view(reinterpret_cast<const char*>(bytes_.data()) + place, head.size))) return;
      place += head.size;
    }
  }

 private:
  static constexpr std::size_t kMostKnown = 1 << 16;
  struct Head {
    std::uint64_t at = 0;
    std::uint64_t size = 0;
  };
  struct Entry {
    std::uint64_t hash = 0;
    std::size_t begin = 0;  // of its bytes; 0: no list
    std::size_t size = 0;
    std::uint32_t number = 0;
    [[nodiscard]] std::uint64_t place() const { return hash; }
    [[nodiscard]] bool is_used() const { return begin != 0; }
  };
  [[nodiscard]] protozero::data_view bytes_of(const Entry& entry) const;
  [[nodiscard]] const Entry* find(std::uint64_t hash, protozero::data_view list) const;

  PageBuffer bytes_;  // of each list: its Head and its fields
  std::uint32_t size_ = 0;
  RecentTable<Entry, kMostKnown> known_;
  std::optional<std::uint32_t> number_;  // of the sample at hand, if its list is known
  protozero::data_view list_;            // else what was added of it
  std::string scattered_;                // list_, where other fields are between its own
};

// What all labels of a sample together say.
struct SampleLabels {
  std::uint32_t pid = 0, tid = 0;
  std::uint32_t comm = profile::kNone;  // An index into Profile::strings.
  std::uint32_t set = 0;                // An index into Profile::label_sets.
  std::uint8_t end = 0, certainty = 0;
};

// Reads lists of labels, and adds their strings and sets to the profile.
class PprofLabels {
 public:
  PprofLabels(const std::vector<std::string_view>& strings, profile::Profile& to) : strings_(strings), profile_(to) {}

  // Throws a protozero::exception if a label is damaged.
  SampleLabels read(protozero::data_view list);
  // Of the list that was read last: how many are in its set, and an index past the string table.
  [[nodiscard]] std::size_t set_size() const { return set_.size(); }
  [[nodiscard]] const std::optional<std::int64_t>& wrong_string() const { return wrong_string_; }

 private:
  void read_label(protozero::data_view label, SampleLabels& to);
  std::string_view string_at(std::int64_t index);
  std::uint32_t intern(std::string_view text);
  std::uint32_t intern_set();

  const std::vector<std::string_view>& strings_;
  profile::Profile& profile_;
  std::optional<std::int64_t> wrong_string_;
  std::unordered_map<std::string_view, std::uint32_t> interned_;
  std::vector<profile::Label> set_;                            // that is being read
  std::unordered_map<std::string, std::uint32_t> known_sets_;  // by their bytes
};

}  // namespace windlass::exporter
