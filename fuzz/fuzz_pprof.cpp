// Input: a profile, compressed or not. What is accepted must survive every exporter and come back from a rewrite.
#include <algorithm>
#include <string>
#include <vector>

#include "check.h"
#include "profiler/export/call_tree.h"
#include "profiler/export/chrome.h"
#include "profiler/export/firefox.h"
#include "profiler/export/folded.h"
#include "profiler/export/labels.h"
#include "profiler/export/pprof.h"
#include "profiler/export/report.h"
#include "profiler/export/speedscope.h"
#include "profiler/export/thread_lines.h"
#include "profiler/export/times.h"
#include "profiler/export/values.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windlass;
  const exporter::PprofLimits limits{.max_bytes = 1 << 20, .max_items = 1 << 16};
  const auto profile = exporter::read_pprof(ByteView(reinterpret_cast<const std::byte*>(data), size), limits);
  if (!profile) return 0;
  for (const auto& sample : profile->samples)
    for (const auto location : sample.locations) FUZZ_CHECK(location < profile->locations.size());
  for (const auto& location : profile->locations)
    for (const auto& line : location.lines) FUZZ_CHECK(line.function < profile->functions.size());

  FUZZ_CHECK(profile->shown_event < profile->events.size());
  for (const auto& sample : profile->samples) {
    FUZZ_CHECK(sample.event < profile->events.size());
    FUZZ_CHECK(sample.labels < profile->label_sets.size());
  }

  std::string text;
  TextWriter out(&text);
  FUZZ_CHECK(exporter::write_speedscope(*profile, out).has_value());
  const auto values = exporter::named_values(*profile);
  for (std::size_t i = 0; i < std::min<std::size_t>(values.size(), 4); ++i) {
    const auto type = values[i].type;
    FUZZ_CHECK(exporter::write_folded(*profile, out, type).has_value());
    FUZZ_CHECK(exporter::write_json(*profile, out, type).has_value());
    const auto lines = exporter::thread_lines(*profile, type);
    FUZZ_CHECK(exporter::write_firefox(*profile, lines, type, out).has_value());
    FUZZ_CHECK(exporter::write_chrome(*profile, lines, type, out).has_value());
    FUZZ_CHECK(exporter::write_report(*profile, out, {.value = type, .width = 60}).has_value());
    FUZZ_CHECK(!exporter::values_named(*profile, values[i].name).empty());
    for (const auto& label : exporter::label_shares(*profile, type)) FUZZ_CHECK(!label.shares.empty());
  }

  std::string rewritten;
  TextWriter again(&rewritten);
  FUZZ_CHECK(exporter::write_pprof(*profile, again).has_value());
  const auto back =
      exporter::read_pprof(ByteView(reinterpret_cast<const std::byte*>(rewritten.data()), rewritten.size()));
  FUZZ_CHECK(back.has_value());
  FUZZ_CHECK(back->samples.size() == profile->samples.size());
  FUZZ_CHECK(back->locations.size() == profile->locations.size());
  for (std::size_t i = 0; i < back->samples.size(); ++i) {
    FUZZ_CHECK(back->samples[i].locations == profile->samples[i].locations);
    FUZZ_CHECK(back->samples[i].count == profile->samples[i].count);
    FUZZ_CHECK(back->samples[i].end == profile->samples[i].end);
    FUZZ_CHECK(std::ranges::equal(times_of(*back, back->samples[i]), times_of(*profile, profile->samples[i])));
    for (std::uint32_t event = 0; event < profile->events.size(); ++event)
      FUZZ_CHECK(weight_of(*back, back->samples[i], {event, false}) ==
                 weight_of(*profile, profile->samples[i], {event, false}));
  }

  // Two halves of the time have no more than the whole.
  constexpr std::uint64_t kMiddle = 1'000'000'000;
  auto first = *profile, second = *profile;
  (void)exporter::keep_times(first, {.begin = 0, .end = kMiddle});
  (void)exporter::keep_times(second, {.begin = kMiddle});
  for (std::uint32_t event = 0; event < profile->events.size(); ++event) {
    if (profile->events[event].period == 0) continue;
    const auto sum = [&](const profile::Profile& part) { return exporter::totals_of(part, {event, true}).samples; };
    FUZZ_CHECK(sum(first) + sum(second) <= sum(*profile));
  }

  // Each label chooses samples, and groups those that are left.
  for (const std::string& key : exporter::label_keys(*profile)) {
    const auto label_values = exporter::label_values(*profile, key);
    auto part = *profile;
    if (!label_values.empty()) {
      const std::vector<exporter::LabelFilter> filters{{key, label_values.front()}};
      exporter::keep_samples(part, filters);
      FUZZ_CHECK(!part.samples.empty());
    }
    exporter::group_samples(part, key);
    FUZZ_CHECK(exporter::write_folded(part, out).has_value());
    if (text.size() > 1 << 22) break;
  }
  return 0;
}
