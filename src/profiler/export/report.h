// The report for people: a header, the top functions and the call tree, fitted to a terminal.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/text_writer.h"
#include "profiler/profile/profile.h"
#include "windlass/error.h"

namespace windlass::exporter {

struct ReportOptions {
  std::optional<profile::ValueType> value{};  // shown_by_default()
  std::string label{};                        // all values of this label, instead of functions and tree
  unsigned width = 100;                       // columns
  bool colour = false;                        // ANSI colours
  std::size_t functions = 20;                 // rows of the table
  std::size_t tree_lines = 60;
  double tree_share = 0.01;  // subtrees below this share of all samples are left out (and counted)
};

[[nodiscard]] Expected<void> write_report(const profile::Profile& profile, TextWriter& out,
                                          const ReportOptions& options = {});

// The version of the objects of all JSON of `report`. A new key leaves it as it is: programs skip keys that they do not
// know. It grows when a key gets another meaning or goes away.
inline constexpr unsigned kJsonSchema = 1;

// The same facts for programs, one JSON object a line:
//   {"type":"profile","schema":1,"samples":N,"truncated":N,"chained":N,"lost":N,"value":"...","unit":"...","start_unix_ns":N,
//    "duration_ns":N,"events":[{"name":"...","unit":"...","counted":"...","period":N,"per_time":N}],"comments":[...]}
//   {"type":"module","id":N,"path":"...","build_id":"..."|null}
//   {"type":"function","id":N,"name":"...","module":N|null,"modules":[N],"file":"..."|null,"line":N|null,"self":N,
//    "total":N}
//   {"type":"location","id":N,"module":N|null,"address":N,"lines":[{"function":N,"line":N|null}]}  innermost inlined
//   first
//   {"type":"sample","event":"...","count":N,"value":N,"pid":N,"tid":N,"comm":"...","truncated":"reason"|null,
//    "certainty":"...","labels":{"key":["value"]},"locations":[N],"times":[{"begin":N,"lasted":N}]}
//                 locations innermost first; no "labels", "times" or "per_time" if there are none
// "samples", "truncated", "chained", "self" and "total" are sums of the value of `type`, whose name and unit the first
// line has. The "value" of a sample is that of its event, in the event's unit. Functions come sorted by self, then
// total, descending; every frame has one, unnamed ones "module+0xoffset".
[[nodiscard]] Expected<void> write_json(const profile::Profile& profile, TextWriter& out, profile::ValueType type);
[[nodiscard]] inline Expected<void> write_json(const profile::Profile& profile, TextWriter& out) {
  return write_json(profile, out, shown_by_default(profile));
}

}  // namespace windlass::exporter
