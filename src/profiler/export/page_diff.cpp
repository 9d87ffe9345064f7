#include "profiler/export/page_diff.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/shown.h"
#include "profiler/export/merge.h"
#include "profiler/export/significance.h"

namespace windlass::exporter {

namespace {

using profile::kNone;

constexpr int kPageDigits = 9;

// One side, ready to be merged: one event, and no labels. Where stacks begin with the value of a label, each such value
// is a label set, with the value as key, too.
profile::Profile one_side(const profile::Profile& of, profile::ValueType type, const char* name) {
  profile::Profile side;
  side.strings = of.strings;
  side.modules = of.modules;
  side.functions = of.functions;
  side.locations = of.locations;
  side.events = {{.name = name, .unit = "count"}};
  std::map<std::uint32_t, std::uint32_t> sets{{kNone, 0}};
  for (const profile::Sample& sample : of.samples) {
    const std::uint64_t weight = weight_of(of, sample, type);
    if (weight == 0) continue;
    const std::uint32_t root = root_of(of, sample);
    const auto [set, is_new] = sets.try_emplace(root, static_cast<std::uint32_t>(side.label_sets.size()));
    if (is_new) side.label_sets.push_back({{root, root}});
    profile::Sample& to = side.samples.emplace_back();
    to.locations = sample.locations;
    to.count = weight;
    to.comm = sample.comm;
    to.labels = set->second;
    to.end = sample.end;
  }
  return side;
}

std::set<std::string_view> thread_names(const profile::Profile& profile) {
  std::set<std::string_view> all;
  for (const profile::Sample& sample : profile.samples)
    if (sample.comm < profile.strings.size()) all.insert(profile.strings[sample.comm]);
  return all;
}

// A program whose file was renamed gives its threads other names. Stacks then have nothing in common unless these names
// go.
void forget_thread_names(profile::Profile& a, profile::Profile& b) {
  const auto of_a = thread_names(a), of_b = thread_names(b);
  if (std::ranges::any_of(of_a, [&](std::string_view name) { return of_b.contains(name); })) return;
  for (profile::Profile* side : {&a, &b}) {
    const auto name = static_cast<std::uint32_t>(side->strings.size());
    side->strings.emplace_back("threads of any name");
    for (profile::Sample& sample : side->samples) sample.comm = name;
  }
}

void write_page_numbers(JsonWriter& json, const FunctionDifference::Numbers& numbers) {
  json.begin_array();
  json.value(numbers.a);
  json.value(numbers.b);
  json.value(numbers.difference, kPageDigits);
  json.value(numbers.p, kPageDigits);
  json.value(numbers.differs);
  json.end_array();
}

void write_page_side(JsonWriter& json, const profile::Profile& profile, const ProfileSide& side,
                     const std::string& name) {
  json.begin_object();
  json.member("name", shown(name));
  json.member("sum", side.sum);
  json.member("divisor", side.divisor, kPageDigits);
  json.member("lost", profile.lost);
  json.member("start_unix_ms", profile.start_unix_ns / 1'000'000);
  json.member("seconds", static_cast<double>(profile.duration_ns) / 1e9, 3);
  json.key("comments");
  json.begin_array();
  for (const std::string& comment : profile.comments) json.value(shown(comment));
  json.end_array();
  json.end_object();
}

}  // namespace

profile::Profile both_sides(const ProfileDifference& difference, const profile::Profile& a, const profile::Profile& b) {
  profile::Profile both = one_side(a, difference.a.type, "before");
  profile::Profile after = one_side(b, difference.b.type, "after");
  forget_thread_names(both, after);
  merge_into(both, after);
  if (!a.roots.empty() || !b.roots.empty())
    for (const auto& set : both.label_sets) both.roots.push_back(set.empty() ? kNone : set.front().value);
  return both;
}

void write_page_difference(const ProfileDifference& difference, const profile::Profile& a, const profile::Profile& b,
                           const DiffOptions& options, const profile::Profile& both, const Frames& frames,
                           const PageTable& table, JsonWriter& json) {
  std::map<FunctionKey, std::uint32_t> frame_of;
  for (std::uint32_t i = 0; i < table.frames.size(); ++i) {
    const Frame& frame = frames[table.frames[i]];
    if (frame.kind == FrameKind::kComm || frame.kind == FrameKind::kTruncated) continue;
    frame_of.try_emplace(function_key(both, frame), i);
  }
  json.key("diff");
  json.begin_object();
  json.member("value", shown(difference.value));
  json.member("unit", shown(difference.unit));
  json.member("normalise", text_of(difference.normalise));
  json.member("tests", difference.tests);
  json.member("differing", difference.differing);
  json.member("false_discoveries", kFalseDiscoveries, 2);
  json.member("noise", difference.noise, kPageDigits);
  json.key("sides");
  json.begin_array();
  write_page_side(json, a, difference.a, options.name_a);
  write_page_side(json, b, difference.b, options.name_b);
  json.end_array();
  json.key("functions");  // of each: [its frame, [a, b, difference, p, differs] of self, the same of total]
  json.begin_array();
  for (const FunctionDifference& one : difference.functions) {
    json.next_line();
    json.begin_array();
    json.value(frame_of.at(one));
    write_page_numbers(json, one.self);
    write_page_numbers(json, one.total);
    json.end_array();
  }
  json.end_array();
  json.end_object();
}

}  // namespace windlass::exporter
