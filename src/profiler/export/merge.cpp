#include "profiler/export/merge.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

namespace windlass::exporter {

namespace {

using profile::kNone;

// Places in `to` of what `from` has: where an equal one is, or where it is added.
template <typename T, typename KeyOf>
std::vector<std::uint32_t> places_of(std::vector<T>& to, const std::vector<T>& from, KeyOf key_of) {
  std::unordered_map<std::string, std::uint32_t> known;
  for (std::uint32_t i = 0; i < to.size(); ++i) known.try_emplace(key_of(to[i]), i);
  std::vector<std::uint32_t> places;
  for (const T& one : from) {
    const auto [entry, is_new] = known.try_emplace(key_of(one), static_cast<std::uint32_t>(to.size()));
    if (is_new) to.push_back(one);
    places.push_back(entry->second);
  }
  return places;
}

// Texts behind their sizes, so that no two lists of texts have one key.
std::string key(std::initializer_list<std::string_view> texts, std::initializer_list<std::uint64_t> numbers) {
  std::string all;
  for (const std::string_view text : texts) all += fmt::format("{}:{}", text.size(), text);
  for (const std::uint64_t number : numbers) all += fmt::format(",{}", number);
  return all;
}

std::uint32_t place(const std::vector<std::uint32_t>& places, std::uint32_t index) {
  return index < places.size() ? places[index] : kNone;
}

std::vector<std::uint32_t> merge_locations(profile::Profile& to, const profile::Profile& from,
                                           const std::vector<std::uint32_t>& modules,
                                           const std::vector<std::uint32_t>& functions) {
  std::vector<profile::Location> coming = from.locations;
  for (profile::Location& location : coming) {
    location.module = place(modules, location.module);
    for (profile::Line& line : location.lines) line.function = place(functions, line.function);
  }
  return places_of(to.locations, coming, [](const profile::Location& location) {
    std::string all = key({}, {location.module, location.address, location.function_begin, location.interpreted});
    for (const profile::Line& line : location.lines) all += key({}, {line.function, line.line});
    return all;
  });
}

std::vector<std::uint32_t> merge_label_sets(profile::Profile& to, const profile::Profile& from,
                                            const std::vector<std::uint32_t>& strings) {
  auto coming = from.label_sets;
  for (auto& set : coming)
    for (profile::Label& label : set) label = {place(strings, label.key), place(strings, label.value)};
  return places_of(to.label_sets, coming, [](const std::vector<profile::Label>& set) {
    std::string all;
    for (const profile::Label& label : set) all += key({}, {label.key, label.value});
    return all;
  });
}

std::uint64_t sum_or_most(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? ~std::uint64_t{0} : sum;
}

std::uint64_t value_of(const profile::Profile& profile, const profile::Sample& sample) {
  const std::uint64_t period = profile.events[sample.event].period;
  return period != 0 ? sample.count * period : sample.value;
}

// Recordings at different rates have no period in common. Each sample keeps what it stands for.
void spell_out_values(profile::Profile& profile, std::uint32_t event) {
  for (profile::Sample& sample : profile.samples)
    if (sample.event == event) sample.value = value_of(profile, sample);
  profile.events[event].period = 0;
}

}  // namespace

void merge_into(profile::Profile& to, const profile::Profile& from) {
  const auto strings = places_of(to.strings, from.strings, [](const std::string& text) { return text; });
  const auto modules = places_of(to.modules, from.modules, [](const profile::Module& module) {
    return key({module.path, module.build_id}, {module.begin, module.end, module.file_offset, module.pid});
  });
  const auto functions = places_of(to.functions, from.functions, [](const profile::Function& function) {
    return key({function.name, function.system_name, function.file}, {function.start_line});
  });
  const auto locations = merge_locations(to, from, modules, functions);
  const auto events = places_of(to.events, from.events, [](const profile::Event& event) {
    return key({event.name, event.unit, event.counted}, {});
  });
  for (std::size_t i = 0; i < events.size(); ++i)
    if (to.events[events[i]].period != from.events[i].period) spell_out_values(to, events[i]);
  const auto label_sets = merge_label_sets(to, from, strings);
  // Times count from the start of one recording.
  to.times.clear();
  for (profile::Event& event : to.events) event.per_time = 0;
  for (profile::Sample& sample : to.samples) sample.first_time = sample.times = 0;
  to.samples.reserve(to.samples.size() + from.samples.size());
  for (profile::Sample sample : from.samples) {
    for (std::uint32_t& location : sample.locations) location = place(locations, location);
    sample.comm = place(strings, sample.comm);
    sample.value = value_of(from, sample);
    sample.event = events[sample.event];
    sample.labels = label_sets[sample.labels];
    sample.first_time = sample.times = 0;
    to.samples.push_back(std::move(sample));
  }
  if (to.start_unix_ns == 0 || (from.start_unix_ns != 0 && from.start_unix_ns < to.start_unix_ns))
    to.start_unix_ns = from.start_unix_ns;
  to.duration_ns = sum_or_most(to.duration_ns, from.duration_ns);
  to.lost = sum_or_most(to.lost, from.lost);
  to.ends_known &= from.ends_known;
  for (const std::string& comment : from.comments)
    if (std::ranges::find(to.comments, comment) == to.comments.end()) to.comments.push_back(comment);
}

Expected<void> check_sums(const profile::Profile& profile) {
  std::vector<profile::ValueType> types = value_types(profile);
  if (has_wall_time(profile)) types.push_back(profile::kWallTime);
  for (const profile::ValueType type : types) {
    std::uint64_t sum = 0;
    for (const profile::Sample& sample : profile.samples)
      if (__builtin_add_overflow(sum, weight_of(profile, sample, type), &sum))
        return fail(ErrorCode::kLimit, "values of the samples add up to more than 64 bits", 0);
  }
  return {};
}

}  // namespace windlass::exporter
