#include "profiler/export/pprof_samples.h"

#include <algorithm>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "profiler/export/pprof_fields.h"
#include "profiler/export/pprof_wire.h"

namespace windlass::exporter {

namespace {

constexpr std::size_t kMostReserved = 1 << 22;

}  // namespace

PprofSamples::PprofSamples(profile::Profile& to, const std::vector<std::string_view>& strings,
                           const PprofLimits& limits, std::vector<PprofEventValues> values, std::size_t types,
                           std::uint64_t items)
    : profile_(to),
      limits_(limits),
      event_values_(std::move(values)),
      types_(types),
      labels_(strings, to),
      items_(items),
      varies_(event_values_.size()),
      sums_(event_values_.size()) {}

bool PprofSamples::read(PprofSplit& split, const PprofStacks& stacks) noexcept {
  try {
    profile_.samples.reserve(std::min(split.samples(), kMostReserved));
    read_labels(split.labels());
    if (error_) return false;
    split.take_samples(
        [&](std::uint64_t at, const SampleStack& stack, std::uint32_t labels, protozero::data_view fields) {
          at_ = at;
          read_sample(stacks, stack, lists_[labels], protozero::pbf_reader(fields));
          return !error_;
        });
  } catch (const protozero::exception&) {
    set_error(ErrorCode::kMalformed, kDamagedPprof);
  } catch (const std::bad_alloc&) {
    set_error(ErrorCode::kLimit, kNoMemory);
  }
  return !error_;
}

void PprofSamples::read_labels(const PprofLabelLists& lists) {
  if (!count_items(lists.size() * sizeof(SampleLabels) / kItemBytes)) return;
  lists_.reserve(lists.size());
  lists.for_each([&](std::uint64_t at, protozero::data_view list) {
    at_ = at;
    lists_.push_back(labels_.read(list));
    if (labels_.wrong_string())
      set_error(ErrorCode::kOutOfRange, kNoSuchString, static_cast<std::uint64_t>(*labels_.wrong_string()));
    return count_items(labels_.set_size()) && !error_;
  });
}

// `fields`: those that are neither locations nor labels.
void PprofSamples::read_sample(const PprofStacks& stacks, const SampleStack& stack, const SampleLabels& labels,
                               protozero::pbf_reader fields) {
  values_.clear();
  times_.clear();
  lasted_.clear();
  while (fields.next()) {
    switch (fields.tag()) {
      case pprof::kSampleValue: read_values(fields); break;
      case pprof::kSampleTimes: read_numbers(fields, times_); break;
      case pprof::kSampleLasted: read_numbers(fields, lasted_); break;
      default: fields.skip();
    }
  }
  const bool any = std::ranges::any_of(values_, [](std::int64_t one) { return one > 0; });
  negative_ += static_cast<std::uint64_t>(std::ranges::count_if(values_, [](std::int64_t one) { return one < 0; }));
  bool added = false;
  for (std::uint32_t event = 0; event < event_values_.size() && !error_; ++event) {
    if (!add_values(event, any, added)) continue;
    added = true;
    profile::Sample& sample = profile_.samples.back();
    sample.locations = stacks.stack_of(stack);
    sample.pid = labels.pid;
    sample.tid = labels.tid;
    sample.comm = labels.comm;
    sample.end = labels.end;
    sample.certainty = labels.certainty;
    sample.labels = labels.set;
  }
  if (added && !times_.empty() && !error_) add_times(profile_.samples.back());
}

// Of our files, whose samples have one event each.
void PprofSamples::add_times(profile::Sample& sample) {
  const std::uint64_t per_time = profile_.events[sample.event].per_time;
  if (per_time == 0) return;
  if (times_.size() > sample.count / per_time || (!lasted_.empty() && lasted_.size() != times_.size()))
    return set_error(ErrorCode::kMalformed, "sample has another number of times than of counts", times_.size());
  sample.first_time = profile_.times.size();
  sample.times = static_cast<std::uint32_t>(times_.size());
  std::uint64_t time = 0;
  for (std::size_t i = 0; i < times_.size(); ++i) {
    const std::uint64_t lasted = lasted_.empty() ? 0 : lasted_[i];
    if (__builtin_add_overflow(time, times_[i], &time) || time + lasted < time)
      return set_error(ErrorCode::kLimit, "time of a sample does not fit in 64 bits");
    profile_.times.push_back({time, lasted});
  }
}

void PprofSamples::read_numbers(protozero::pbf_reader& fields, std::vector<std::uint64_t>& to) {
  must_be(fields, protozero::pbf_wire_type::length_delimited);
  for (const std::uint64_t number : fields.get_packed_uint64())
    if (count_items(1)) to.push_back(number);
}

std::uint64_t PprofSamples::value_at(std::size_t index) const {
  return index < values_.size() ? static_cast<std::uint64_t>(std::max<std::int64_t>(values_[index], 0)) : 0;
}

// Adds a sample with its values: true, if it has something of the event. One without `any` value is kept by the first
// event. `again`: another event has taken the sample already.
bool PprofSamples::add_values(std::uint32_t event, bool any, bool again) {
  const PprofEventValues at = event_values_[event];
  const std::uint64_t period = profile_.events[event].period, value = value_at(at.value);
  std::uint64_t count = value_at(at.count);
  if (at.count == PprofEventValues::kNoValue && value != 0)
    count = period != 0 ? std::max<std::uint64_t>(1, value / period) : 1;
  if (count == 0 && value == 0 && (any || event != 0)) return false;
  if (at.value != PprofEventValues::kNoValue && period != 0 && value != count * period) varies_[event] = true;
  Sums& sums = sums_[event];
  if (__builtin_add_overflow(sums.count, count, &sums.count) ||
      __builtin_add_overflow(sums.value, value, &sums.value)) {
    set_error(ErrorCode::kLimit, "values of the samples add up to more than 64 bits");
    return false;
  }
  if (again && !count_items(sizeof(profile::Sample) / kItemBytes)) return false;
  profile::Sample& added = profile_.samples.emplace_back();
  added.event = event;
  added.count = count;
  added.value = value;
  return true;
}

void PprofSamples::read_values(protozero::pbf_reader& fields) {
  if (fields.wire_type() != protozero::pbf_wire_type::length_delimited) {
    if (values_.size() < types_)
      values_.push_back(signed_of(fields));
    else
      fields.skip();
    return;
  }
  for (const auto value : fields.get_packed_int64())
    if (values_.size() < types_) values_.push_back(value);
}

// Where values are not a multiple of the period, each counts as it is.
void PprofSamples::settle_periods() {
  if (negative_ != 0) profile_.comments.push_back(fmt::format("{} values below 0 were read as 0", negative_));
  for (std::size_t i = 0; i < varies_.size(); ++i)
    if (varies_[i]) profile_.events[i].period = 0;
}

bool PprofSamples::count_items(std::uint64_t number) {
  items_ += number;
  if (items_ > limits_.max_items) set_error(ErrorCode::kLimit, kTooManyItems, limits_.max_items);
  return items_ <= limits_.max_items;
}

void PprofSamples::set_error(ErrorCode code, const char* what, std::uint64_t detail) {
  if (!error_) error_ = Error{code, what, at_, detail};
}

}  // namespace windlass::exporter
