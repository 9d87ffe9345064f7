#include "profiler/export/values.h"

#include <algorithm>
#include <map>
#include <utility>

namespace windlass::exporter {

namespace {

std::string long_name(const profile::Profile& profile, profile::ValueType type) {
  return event_of(profile, type).name + "/" + name_of(profile, type);
}

}  // namespace

std::vector<NamedValue> named_values(const profile::Profile& profile) {
  auto types = value_types(profile);
  if (has_wall_time(profile)) types.push_back(profile::kWallTime);
  std::vector<NamedValue> named;
  for (const profile::ValueType type : types) {
    const std::string& name = name_of(profile, type);
    const auto same = [&](profile::ValueType other) { return name_of(profile, other) == name; };
    named.push_back({std::ranges::count_if(types, same) > 1 ? long_name(profile, type) : name, type});
  }
  // Files of other programs may have two events of one name.
  std::map<std::string, unsigned> seen;
  for (NamedValue& one : named)
    if (const unsigned number = ++seen[one.name]; number > 1) one.name += "#" + std::to_string(number);
  return named;
}

std::string value_name(const profile::Profile& profile, profile::ValueType type) {
  for (NamedValue& one : named_values(profile))
    if (one.type.event == type.event && one.type.counts == type.counts) return std::move(one.name);
  return name_of(profile, type);
}

std::vector<NamedValue> values_named(const profile::Profile& profile, std::string_view name) {
  std::vector<NamedValue> found = named_values(profile);
  const auto by_name = std::ranges::find(found, name, &NamedValue::name);
  if (by_name != found.end()) return {*by_name};
  const auto by_long =
      std::ranges::find_if(found, [&](const auto& one) { return long_name(profile, one.type) == name; });
  if (by_long != found.end()) return {*by_long};
  std::erase_if(found, [&](const auto& one) { return name_of(profile, one.type) != name; });
  return found;
}

}  // namespace windlass::exporter
