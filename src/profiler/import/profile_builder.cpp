#include "profiler/import/profile_builder.h"

#include <algorithm>
#include <utility>

namespace windlass::importer {
namespace {

template <typename... Numbers>
std::string bytes_of(Numbers... numbers) {
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(&numbers), sizeof numbers), ...);
  return bytes;
}

}  // namespace

// `next`: the number that a new one gets.
template <typename Make>
std::uint32_t ProfileBuilder::find_or_add(std::unordered_map<std::string, std::uint32_t>& known, std::string key,
                                          std::size_t next, Make make) {
  const auto [entry, is_new] = known.try_emplace(std::move(key), static_cast<std::uint32_t>(next));
  if (is_new) {
    make();
    count(1);
  }
  return entry->second;
}

std::uint32_t ProfileBuilder::string(std::string_view text) {
  return find_or_add(strings_, std::string(text), profile_.strings.size(),
                     [&] { profile_.strings.emplace_back(text); });
}

std::uint32_t ProfileBuilder::module(std::string_view path) {
  return find_or_add(modules_, std::string(path), profile_.modules.size(), [&] {
    profile_.modules.push_back({.path = std::string(path), .is_kernel = path.starts_with("[kernel")});
  });
}

std::uint32_t ProfileBuilder::add_module(profile::Module module) {
  module.is_kernel |= module.path.starts_with("[kernel");
  profile_.modules.push_back(std::move(module));
  return static_cast<std::uint32_t>(profile_.modules.size() - 1);
}

std::uint32_t ProfileBuilder::function(std::string_view name, std::string_view file, std::uint32_t start_line) {
  std::string key = bytes_of(start_line, name.size());
  key.append(name).append(file);
  constexpr std::size_t kLong = 256;  // tables can name one long text often
  count(key.size() / kLong);
  return find_or_add(functions_, std::move(key), profile_.functions.size(), [&] {
    profile_.functions.push_back({.name = std::string(name),
                                  .system_name = std::string(name),
                                  .file = std::string(file),
                                  .start_line = start_line});
  });
}

std::uint32_t ProfileBuilder::location(std::uint32_t module, std::uint64_t address) {
  return location(module, address, {});
}

std::uint32_t ProfileBuilder::location(std::uint32_t module, std::uint64_t address,
                                       std::span<const profile::Line> lines) {
  std::string key = bytes_of(module, address);
  for (const profile::Line& line : lines) key += bytes_of(line.function, line.line);
  return find_or_add(locations_, std::move(key), profile_.locations.size(), [&] {
    profile_.locations.push_back({.module = module, .address = address, .lines = {lines.begin(), lines.end()}});
  });
}

std::uint32_t ProfileBuilder::event(profile::Event event) {
  if (profile_.events.size() == kMostEvents) {
    too_many_events_ = true;
    return 0;
  }
  profile_.events.push_back(std::move(event));
  added_.emplace_back();
  return static_cast<std::uint32_t>(profile_.events.size() - 1);
}

std::uint32_t ProfileBuilder::labels(std::string_view key, std::string_view value) {
  const profile::Label label{string(key), string(value)};
  return find_or_add(label_sets_, bytes_of(label), profile_.label_sets.size(),
                     [&] { profile_.label_sets.push_back({label}); });
}

std::uint32_t ProfileBuilder::sample_of(const profile::Sample& sample) {
  std::string key =
      bytes_of(sample.event, sample.pid, sample.tid, sample.comm, sample.labels, sample.end, sample.certainty);
  for (const std::uint32_t location : sample.locations)
    key.append(reinterpret_cast<const char*>(&location), sizeof location);
  return find_or_add(samples_, std::move(key), profile_.samples.size(), [&] {
    profile_.samples.push_back(sample);
    profile_.samples.back().count = profile_.samples.back().value = 0;
    count(sample.locations.size());
  });
}

std::uint32_t ProfileBuilder::sample_of_reference(const profile::Sample& sample) {
  const std::uint64_t before = left_;
  const std::uint32_t number = sample_of(sample);
  if (left_ == before) count(sample.locations.size() + 1);
  return number;
}

void ProfileBuilder::add_to(std::uint32_t number, const profile::Sample& sample, std::optional<std::uint64_t> at) {
  profile::Sample& known = profile_.samples[number];
  const profile::Event& event = profile_.events[sample.event];
  const std::uint64_t weight = event.unit == "count" ? sample.count : std::max(sample.count, sample.value);
  Added& added = added_[sample.event];
  if (added.sum == 0) added.count = sample.count, added.value = sample.value;
  added.equal &= added.count == sample.count && added.value == sample.value;
  overflow_ |= __builtin_add_overflow(added.sum, weight, &added.sum);
  known.count += sample.count;
  known.value += sample.value;
  if (!at) return;
  added.timed = true;
  moments_.push_back({number, *at});
  count(1);
}

void ProfileBuilder::sort_events(FunctionRef<std::uint64_t(std::uint32_t number)> rank) {
  std::vector<std::uint32_t> order(profile_.events.size()), places(order.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](std::uint32_t number) { return rank(number); });
  std::vector<profile::Event> events;
  std::vector<Added> added;
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    events.push_back(std::move(profile_.events[order[i]]));
    added.push_back(added_[order[i]]);
    places[order[i]] = i;
  }
  profile_.events = std::move(events);
  added_ = std::move(added);
  for (profile::Sample& sample : profile_.samples) sample.event = places[sample.event];
}

// A time stands for the same count and value as any other of its event.
void ProfileBuilder::place_times() {
  for (std::size_t i = 0; i < added_.size(); ++i) {
    const Added& added = added_[i];
    profile::Event& event = profile_.events[i];
    const bool counts = event.unit == "count";
    if (!added.timed || !added.equal || added.count == 0 || (!counts && added.value % added.count != 0)) continue;
    event.per_time = added.count;
    if (!counts && event.period == 0) event.period = added.value / added.count;
  }
  std::erase_if(moments_, [&](const Moment& moment) {
    return profile_.events[profile_.samples[moment.sample].event].per_time == 0;
  });
  if (moments_.empty()) return;
  const auto [first, last] = std::ranges::minmax(moments_, {}, &Moment::time);
  const std::uint64_t start = std::min(first.time, origin_);
  if (profile_.duration_ns == 0) profile_.duration_ns = last.time - start;
  std::ranges::sort(moments_, {}, [](const Moment& moment) { return std::pair(moment.sample, moment.time); });
  for (const Moment& moment : moments_) {
    profile::Sample& sample = profile_.samples[moment.sample];
    if (sample.times++ == 0) sample.first_time = profile_.times.size();
    profile_.times.push_back({moment.time - start, 0});
  }
}

Expected<profile::Profile> ProfileBuilder::profile() {
  if (too_many_events_) return fail(ErrorCode::kLimit, "the file has more events than the limit", 0, kMostEvents);
  if (!has_room()) return fail(ErrorCode::kLimit, "the file has more frames and samples than the limit", 0);
  if (overflow_) return fail(ErrorCode::kLimit, "values of the samples add up to more than 64 bits", 0);
  if (profile_.events.empty()) profile_.events.emplace_back();
  place_times();
  return std::move(profile_);
}

}  // namespace windlass::importer
