// Questions to a profile that tests of recordings ask.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "profiler/profile/profile.h"

namespace windlass::test {

// Is a frame of the sample, inlined ones included, in the function of this name?
inline bool has_frame(const profile::Profile& profile, const profile::Sample& sample, std::string_view function) {
  return std::ranges::any_of(sample.locations, [&](std::uint32_t at) {
    return std::ranges::any_of(profile.locations[at].lines, [&](const profile::Line& line) {
      return profile.functions[line.function].name == function;
    });
  });
}

// The value of the sample's label of this key. "": the sample has none.
inline std::string label_of(const profile::Profile& profile, const profile::Sample& sample, std::string_view key) {
  for (const profile::Label& label : profile.label_sets[sample.labels])
    if (profile.strings[label.key] == key) return profile.strings[label.value];
  return "";
}

}  // namespace windlass::test
