// The values of a profile by the names that people give on a command line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "profiler/profile/profile.h"

namespace windlass::exporter {

struct NamedValue {
  std::string name;  // "off-cpu"; "EVENT/VALUE" if other values have the name, too: "wall/samples", "wall/samples#2"
  profile::ValueType type;
};

// All values, in the order of value_types(), then "wall" if there is kWallTime.
[[nodiscard]] std::vector<NamedValue> named_values(const profile::Profile& profile);

// The name of named_values() that a value has.
[[nodiscard]] std::string value_name(const profile::Profile& profile, profile::ValueType type);

// Those of this name, or of this "EVENT/VALUE". More than one: the name does not tell them apart.
[[nodiscard]] std::vector<NamedValue> values_named(const profile::Profile& profile, std::string_view name);

}  // namespace windlass::exporter
