// The samples of a pprof message that was taken apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <protozero/pbf_reader.hpp>
#include <string_view>
#include <vector>

#include "profiler/export/pprof.h"
#include "profiler/export/pprof_labels.h"
#include "profiler/export/pprof_split.h"
#include "profiler/profile/profile.h"
#include "windlass/error.h"

namespace windlass::exporter {

// Which values of a sample are an event's; kNoValue: none.
struct PprofEventValues {
  static constexpr std::size_t kNoValue = ~std::size_t{0};
  std::size_t count = kNoValue, value = kNoValue;
};

// Makes a profile's samples, with their times, labels and strings; reads its events. So another thread may add
// locations meanwhile. Stacks need not be settled.
class PprofSamples {
 public:
  // `values`: of each event. `types`: how many values samples have. `items`: that are counted already.
  PprofSamples(profile::Profile& to, const std::vector<std::string_view>& strings, const PprofLimits& limits,
               std::vector<PprofEventValues> values, std::size_t types, std::uint64_t items);

  // Of all samples, once. False: error() says why. Throws nothing.
  bool read(PprofSplit& split, const PprofStacks& stacks) noexcept;
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  [[nodiscard]] std::uint64_t items() const { return items_; }
  // Behind all samples: of events whose values are no multiples of the period, which counts for nothing.
  void settle_periods();

 private:
  struct Sums {
    std::uint64_t count = 0, value = 0;
  };
  void read_labels(const PprofLabelLists& lists);
  void read_sample(const PprofStacks& stacks, const SampleStack& stack, const SampleLabels& labels,
                   protozero::pbf_reader fields);
  void read_values(protozero::pbf_reader& fields);
  bool add_values(std::uint32_t event, bool any, bool again);
  void add_times(profile::Sample& sample);
  void read_numbers(protozero::pbf_reader& fields, std::vector<std::uint64_t>& to);
  [[nodiscard]] std::uint64_t value_at(std::size_t index) const;
  bool count_items(std::uint64_t number);
  void set_error(ErrorCode code, const char* what, std::uint64_t detail = 0);

  profile::Profile& profile_;
  const PprofLimits limits_;
  const std::vector<PprofEventValues> event_values_;
  const std::size_t types_;
  PprofLabels labels_;
  std::vector<SampleLabels> lists_;  // of each list of labels
  std::uint64_t items_ = 0;
  std::uint64_t at_ = 0;                       // of the sample at hand: its offset in the message
  std::uint64_t negative_ = 0;                 // values
  std::vector<bool> varies_;                   // of each event: a value was no multiple of the period
  std::vector<Sums> sums_;                     // of each event: of all samples
  std::vector<std::int64_t> values_;           // of the sample at hand
  std::vector<std::uint64_t> times_, lasted_;  // of the sample at hand
  std::optional<Error> error_;
};

}  // namespace windlass::exporter
