#include "base/json_writer.h"
#include "profiler/export/diff.h"
#include "profiler/export/report.h"
#include "profiler/export/significance.h"

namespace windlass::exporter {

namespace {

constexpr int kDigits = 6;

void write_side(JsonWriter& json, const profile::Profile& profile, const ProfileSide& side) {
  json.begin_object();
  json.member("samples", side.sum);
  json.member("lost", profile.lost);
  json.member("start_unix_ns", profile.start_unix_ns);
  json.member("duration_ns", profile.duration_ns);
  json.key("comments");
  json.begin_array();
  for (const std::string& comment : profile.comments) json.value(comment);
  json.end_array();
  json.end_object();
}

void write_numbers(JsonWriter& json, const FunctionDifference::Numbers& numbers) {
  json.begin_object();
  json.member("a", numbers.a);
  json.member("b", numbers.b);
  json.member("difference", numbers.difference, kDigits);
  json.member("p", numbers.p, kDigits);
  json.member("differs", numbers.differs);
  json.end_object();
}

}  // namespace

Expected<void> write_diff_json(const ProfileDifference& difference, const profile::Profile& a,
                               const profile::Profile& b, TextWriter& out) {
  JsonWriter json(out);
  json.begin_object();
  json.member("type", "diff");
  json.member("schema", kJsonSchema);
  json.member("value", difference.value);
  json.member("unit", difference.unit);
  json.member("normalise", text_of(difference.normalise));
  json.key("a");
  write_side(json, a, difference.a);
  json.key("b");
  write_side(json, b, difference.b);
  json.member("functions", difference.functions.size());
  json.member("differing", difference.differing);
  json.member("tests", difference.tests);
  json.member("false_discoveries", kFalseDiscoveries, 2);
  json.member("noise", difference.noise, kDigits);
  json.end_object();
  json.end_text();
  for (const FunctionDifference& one : difference.functions) {
    json.begin_object();
    json.member("type", "difference");
    json.member("name", one.name);
    json.key("modules");
    json.begin_array();
    for (const std::string& path : one.modules) json.value(path);
    json.end_array();
    json.member("in", !one.in_b ? "a" : !one.in_a ? "b" : "both");
    json.key("self");
    write_numbers(json, one.self);
    json.key("total");
    write_numbers(json, one.total);
    json.end_object();
    json.end_text();
  }
  return out.finish();
}

}  // namespace windlass::exporter
